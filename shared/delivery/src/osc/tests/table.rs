//! Single cases.

use super::*;
use crate::{AGENT_PATH, payload::SETTINGS};

#[test]
fn machines_get_binary_settings_authority_and_one_unit() {
    let before = object("reconcile");
    let after = admitted(
        &before,
        &items("r.example/agent:1", "files: [{path: /etc/x, from: raw}]\n"),
    );
    let files = after["spec"]["files"].as_array().unwrap();
    assert_eq!(files[0], before["spec"]["files"][0]);
    let paths: Vec<&str> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths[1..],
        [EXTRACTED_PATH, "/etc/virtfleet/tls/ca.crt", SETTINGS, "/etc/x"]
    );
    let reference = json!({"image": "r.example/agent:1", "filePathInImage": "/usr/bin/virtfleet-agent"});
    assert_eq!(files[1]["content"]["imageRef"], reference);
    assert_eq!(files[1]["permissions"], 0o755);
    assert_eq!(
        files[2]["content"]["inline"],
        json!({"encoding": "", "data": AUTHORITY})
    );
    assert!(
        files[3]["content"]["inline"]["data"]
            .as_str()
            .unwrap()
            .contains("enrolment: true")
    );
    assert_eq!(
        files[4]["content"]["inline"],
        json!({"encoding": "b64", "data": "//4="})
    );

    let units = after["spec"]["units"].as_array().unwrap();
    assert_eq!((units.len(), &units[0]), (2, &before["spec"]["units"][0]));
    assert_eq!(units[1]["name"], "virtfleet-delivery.service");
    assert_eq!(
        (&units[1]["enable"], &units[1]["command"]),
        (&json!(true), &json!("start"))
    );
    // A unit's file paths must be in the files, and a change of any restarts it.
    assert_eq!(units[1]["filePaths"], json!(paths[1..]));
    let text = units[1]["content"].as_str().unwrap();
    assert!(
        text.contains(&format!("\nExecStart={EXTRACTED_PATH} install\n")),
        "{text}"
    );
    assert!(text.contains("\nType=simple\n") && !text.contains('@'), "{text}");
}

#[test]
fn other_objects_are_skipped() {
    let mut deleted = object("reconcile");
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let mut other_kind = object("reconcile");
    other_kind["kind"] = "Worker".into();
    let mut other_group = object("reconcile");
    other_group["apiVersion"] = "example.org/v1alpha1".into();
    for skipped in [
        object("provision"),
        object(""),
        deleted,
        other_kind,
        other_group,
        Value::Null,
        json!([]),
    ] {
        let found = plan(&skipped, &first(), &digest);
        assert_eq!(
            found,
            OscPlan {
                action: OscAction::Skipped,
                patch: vec![],
                warnings: vec![]
            },
            "{skipped}"
        );
    }
}

#[test]
fn a_second_admission_changes_nothing_and_gardenlets_next_write_neither() {
    let before = object("reconcile");
    let after = admitted(&before, &first());
    assert_eq!(plan(&after, &first(), &digest).action, OscAction::Unchanged);
    // gardenlet replaces both lists by its own, and keeps annotations that it does not know.
    let mut written = after.clone();
    written["spec"] = before["spec"].clone();
    assert_eq!(admitted(&written, &first()), after);
}

#[test]
fn older_items_are_replaced_in_place_and_obsolete_ones_removed() {
    let first_admission = admitted(&object("reconcile"), &second());
    let mut between = first_admission.clone();
    let theirs = json!({"path": "/etc/theirs", "content": {"inline": {"encoding": "", "data": "x"}}});
    between["spec"]["files"]
        .as_array_mut()
        .unwrap()
        .push(theirs.clone());
    let after = admitted(&between, &first());
    let files = after["spec"]["files"].as_array().unwrap();
    let paths: Vec<&str> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
    let expected = [
        "/var/lib/kubelet/config",
        EXTRACTED_PATH,
        "/etc/virtfleet/tls/ca.crt",
        SETTINGS,
        "/etc/theirs",
    ];
    assert_eq!(paths, expected);
    assert_eq!(
        files[1]["content"]["imageRef"]["image"],
        "registry.example.org/agent:1"
    );
    assert_eq!(files[4], theirs);
    assert_eq!(plan(&after, &first(), &digest).action, OscAction::Unchanged);
    assert_eq!(
        after["spec"]["units"][1],
        admitted(&object("reconcile"), &first())["spec"]["units"][1]
    );
}

#[test]
fn an_ignored_object_stays_and_loses_what_was_added() {
    let before = ignoring(object("reconcile"));
    assert_eq!(plan(&before, &first(), &digest).action, OscAction::Ignored);
    let after = admitted(&object("reconcile"), &first());
    assert_eq!(admitted(&ignoring(after), &first()), before);
    // An item that somebody has changed since is not removed.
    let mut edited = admitted(&object("reconcile"), &first());
    edited["spec"]["files"][1]["permissions"] = 0.into();
    let kept = admitted(&ignoring(edited.clone()), &first());
    assert_eq!(kept["spec"]["files"].as_array().unwrap().len(), 2);
    assert_eq!(kept["spec"]["files"][1], edited["spec"]["files"][1]);
}

/// Nothing changes if somebody else has a path that virtfleet would write.
#[test]
fn items_of_others_at_our_paths_are_left_with_a_warning() {
    let file = |path: &str| json!({"path": path, "content": {"inline": {"encoding": "", "data": "theirs"}}});
    let cases = [
        ("/spec/files", file(EXTRACTED_PATH), EXTRACTED_PATH),
        ("/spec/files", file(SETTINGS), SETTINGS),
        ("/spec/files", file(AGENT_PATH), AGENT_PATH),
        (
            "/spec/files",
            file("/etc/systemd/system/virtfleet-delivery.service"),
            "virtfleet-delivery.service",
        ),
        (
            "/spec/files",
            file("/etc/systemd/system/virtfleet-agent.service"),
            "virtfleet-agent.service",
        ),
        (
            "/spec/units",
            json!({"name": "virtfleet-delivery.service", "enable": false}),
            "virtfleet-delivery.service",
        ),
        (
            "/spec/units",
            json!({"name": "virtfleet-agent.service", "content": "[Unit]\n"}),
            "virtfleet-agent.service",
        ),
        (
            "/spec/units",
            json!({"name": "containerd.service", "dropIns": [{"name": "10-virtfleet.conf", "content": ""}]}),
            "10-virtfleet.conf",
        ),
        ("/status/extensionFiles", file(SETTINGS), "status.extensionFiles"),
        (
            "/status/extensionUnits",
            json!({"name": "virtfleet-delivery.service"}),
            "status.extensionUnits",
        ),
    ];
    for (list, item, named) in cases {
        let mut object = object("reconcile");
        object["status"] = json!({"extensionFiles": [], "extensionUnits": []});
        object
            .pointer_mut(list)
            .unwrap()
            .as_array_mut()
            .unwrap()
            .push(item.clone());
        let found = plan(&object, &first(), &digest);
        assert_eq!(
            (found.action, found.patch.len()),
            (OscAction::Conflict, 0),
            "{item}"
        );
        assert!(found.warnings[0].contains(named), "{named}: {:?}", found.warnings);
        assert!(
            found.warnings[0].contains(IGNORE_ANNOTATION),
            "{:?}",
            found.warnings
        );
    }
    for list in ["files", "units"] {
        let mut object = object("reconcile");
        object["spec"][list] = "text".into();
        let found = plan(&object, &first(), &digest);
        assert!(
            found.warnings[0].contains(&format!("spec.{list} is not a list")),
            "{:?}",
            found.warnings
        );
    }
}

#[test]
fn drop_ins_of_others_for_our_units_are_no_conflict() {
    let mut object = object("reconcile");
    let drop_in = json!({"name": "virtfleet-agent.socket", "dropIns": [{"name": "port.conf", "content": "[Socket]\n"}]});
    object["spec"]["units"].as_array_mut().unwrap().push(drop_in);
    assert_eq!(plan(&object, &first(), &digest).action, OscAction::Patched);
}

/// Without the record nothing counts as added by virtfleet.
#[test]
fn an_equal_item_without_a_record_is_never_replaced() {
    let mut object = admitted(&object("reconcile"), &first());
    object["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove(OWNED_ITEMS_ANNOTATION);
    assert_eq!(plan(&object, &first(), &digest).action, OscAction::Unchanged);
    assert_eq!(plan(&object, &second(), &digest).action, OscAction::Conflict);
    for record in ["", "{}", "[]", "{\"v\":2,\"files\":{},\"units\":{}}"] {
        object["metadata"]["annotations"][OWNED_ITEMS_ANNOTATION] = record.into();
        assert_eq!(
            plan(&object, &second(), &digest).action,
            OscAction::Conflict,
            "{record}"
        );
    }
}

#[test]
fn an_image_has_a_tag_or_a_digest_and_an_absolute_path() {
    let sum = "a".repeat(64);
    for image in [
        "a:1",
        "r.example:5000/x/a:1",
        &format!("r.example/a@sha256:{sum}"),
    ] {
        assert!(AgentImage::new(image, PATH_IN_IMAGE).is_ok(), "{image}");
    }
    for image in [
        "",
        "a",
        "r.example:5000/a",
        "a b:1",
        ":1",
        "r.example/@sha256:1",
        "a:1\n",
    ] {
        assert!(
            AgentImage::new(image, PATH_IN_IMAGE)
                .unwrap_err()
                .contains("image"),
            "{image}"
        );
    }
    for path in ["", "usr/bin/a", "/", "/usr/../a", "/usr//a", "/a b"] {
        assert!(
            AgentImage::new("a:1", path)
                .unwrap_err()
                .contains("absolute path"),
            "{path}"
        );
    }
}
