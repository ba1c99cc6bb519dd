use super::*;
use crate::cloud_init::tests::payload;

fn unpacked(entry: &Value) -> Vec<u8> {
    let source = entry["contents"]["source"].as_str().unwrap();
    let bytes = STANDARD
        .decode(source.strip_prefix("data:;base64,").unwrap())
        .unwrap();
    if entry["contents"]["compression"] == "gzip" {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut text).unwrap();
        text
    } else {
        bytes
    }
}

#[test]
fn the_script_and_its_unit_are_delivered() {
    let payload = payload("files:\n- {path: /x, mode: \"0600\", content: short}\n");
    let config = render(&payload, None).unwrap();
    assert_eq!(config["ignition"]["version"], VERSION);
    let files = config["storage"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(
        (files[0]["path"].as_str(), files[0]["mode"].as_u64()),
        (Some(DELIVER), Some(0o700))
    );
    let text = String::from_utf8(unpacked(&files[0])).unwrap();
    assert_eq!(text, script(&payload, Mechanism::Files));
    assert!(text.contains("\nput 600 ./x 'base64 -d' <<'END'\n"), "{text}");
    let units = config["systemd"]["units"].as_array().unwrap();
    assert_eq!(
        (units.len(), &units[0]["name"], &units[0]["enabled"]),
        (1, &json!(UNIT), &json!(true))
    );
    assert_eq!(units[0]["contents"], payload.unit);
    assert_eq!(
        render(&payload, None).unwrap(),
        config,
        "the same input gives the same output"
    );
}

#[test]
fn an_agent_in_the_image_finds_its_files_at_the_first_boot() {
    let mut payload = payload("");
    payload.binaries.clear();
    let config = render(&payload, None).unwrap();
    let files = config["storage"]["files"].as_array().unwrap();
    assert_eq!(files.len(), payload.files.len() + 1);
    for (entry, file) in files.iter().zip(&payload.files) {
        assert_eq!(
            (entry["path"].as_str(), entry["mode"].as_u64()),
            (Some(file.path.as_str()), Some(file.mode.into()))
        );
        assert_eq!(unpacked(entry), file.content, "{}", file.path);
    }
}

#[test]
fn an_existing_config_is_kept() {
    let payload = payload("");
    let theirs = r#"{"ignition":{"version":"3.4.0","config":{"merge":[]}},
        "storage":{"files":[{"path":"/a"}]},
        "systemd":{"units":[{"name":"kubelet.service","enabled":true,"dropins":[{"name":"a.conf"}]}]}}"#;
    let config = render(&payload, Some(theirs)).unwrap();
    assert_eq!(config["ignition"]["version"], "3.4.0");
    assert!(config["ignition"]["config"].is_object());
    assert_eq!(config["storage"]["files"][0]["path"], "/a");
    let kubelet = &config["systemd"]["units"][0];
    assert_eq!(
        (
            kubelet["enabled"].as_bool(),
            kubelet["dropins"].as_array().unwrap().len()
        ),
        (Some(true), 1)
    );
    // A newer version has stricter rules, such as for links without a target.
    for version in ["3.0.0", "3.1.0", "3.6.0"] {
        let theirs = format!(
            r#"{{"ignition":{{"version":"{version}"}},"storage":null,"systemd":{{"units":[{{"name":"kubelet.service",
            "dropins":null}}]}}}}"#
        );
        let config = render(&payload, Some(&theirs)).unwrap();
        assert_eq!(config["ignition"]["version"], version);
        assert_eq!(config["systemd"]["units"][1]["name"], UNIT);
    }
}

#[test]
fn what_the_delivery_also_has_is_refused() {
    let payload = payload("");
    let with = |lists: &str| format!(r#"{{"ignition":{{"version":"3.3.0"}},{lists}}}"#);
    let wanted = "/var/lib/virtfleet/delivery/wanted";
    for (lists, expected) in [
        (
            format!(r#""storage":{{"links":[{{"path":"{wanted}","target":"/a"}}]}}"#),
            format!("storage.links already has {wanted}"),
        ),
        (
            format!(r#""storage":{{"directories":[{{"path":"{wanted}"}}]}}"#),
            format!("storage.directories already has {wanted}"),
        ),
        (
            r#""storage":{"links":[{"path":"/var/lib/virtfleet","target":"/a"}]}"#.to_owned(),
            "storage.links already has /var/lib/virtfleet, and /var/lib/virtfleet/delivery/".to_owned(),
        ),
        (
            r#""storage":{"links":[{"path":"/etc/systemd/system/virtfleet-delivery.service","target":"/dev/null"}]}"#
                .to_owned(),
            "storage.links already has /etc/systemd/system/virtfleet-delivery.service, which".to_owned(),
        ),
        (
            r#""storage":{"files":[{"path":"/etc/virtfleet/agent.d"}]}"#.to_owned(),
            "storage.files already has /etc/virtfleet/agent.d, and /etc/virtfleet/agent.d/".to_owned(),
        ),
        (
            r#""storage":{"directories":[{"path":"/etc/virtfleet/agent.d/50-delivery.yaml/x"}]}"#.to_owned(),
            "the delivery already has /etc/virtfleet/agent.d/50-delivery.yaml, and /etc/virtfleet/".to_owned(),
        ),
        (
            r#""storage":{"files":[{"path":"/var/lib"}]}"#.to_owned(),
            "storage.files already has /var/lib, and /var/lib/virtfleet/delivery/".to_owned(),
        ),
        (
            r#""storage":{"links":[{"path":"/a","target":"b"}],"directories":[{"path":"/a"}]}"#.to_owned(),
            "storage.directories already has /a".to_owned(),
        ),
        (
            r#""storage":{"directories":[{"path":"/a//b"}]}"#.to_owned(),
            "storage.directories: \"/a//b\" is not an absolute path".to_owned(),
        ),
        (
            r#""storage":{"links":[{}]}"#.to_owned(),
            "storage.links: null is not an absolute path".to_owned(),
        ),
        (
            r#""storage":{"links":{}}"#.to_owned(),
            "storage: links is not a list".to_owned(),
        ),
        (
            r#""systemd":{"units":[{"name":"a.service"},{"name":"a.service"}]}"#.to_owned(),
            "systemd.units already has a.service".to_owned(),
        ),
        (
            r#""systemd":{"units":[null]}"#.to_owned(),
            "systemd.units: one has no name".to_owned(),
        ),
        (
            r#""systemd":{"units":[{"name":"a.service","dropins":[{"name":"a.conf"},{"name":"a.conf"}]}]}"#
                .to_owned(),
            "systemd.units: dropins of \"a.service\" already has a.conf".to_owned(),
        ),
    ] {
        let error = render(&payload, Some(&with(&lists))).unwrap_err();
        assert!(error.starts_with(&expected), "{lists}: {error}");
    }
    for version in ["3.3", "3.1.1", "3.03.0", "3.7.0-experimental", "3.99.0"] {
        let theirs = format!(r#"{{"ignition":{{"version":"{version}"}}}}"#);
        let error = render(&payload, Some(&theirs)).unwrap_err();
        assert!(error.contains("which Ignition does not know"), "{error}");
    }

    for (theirs, expected) in [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "ignition.version is missing"),
        (r#"{"ignition":{"version":"2.3.0"}}"#, "ignition.version is 2.3.0"),
        (
            r#"{"ignition":{"version":"3.3.0"},"storage":[]}"#,
            "storage is not an object",
        ),
        (
            r#"{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/var/lib/virtfleet/delivery/wanted"}]}}"#,
            "storage.files already has /var/lib",
        ),
        (
            r#"{"ignition":{"version":"3.3.0"},"systemd":{"units":[{"name":"virtfleet-delivery.service"}]}}"#,
            "systemd.units already has virtfleet-delivery.service",
        ),
    ] {
        let error = render(&payload, Some(theirs)).unwrap_err();
        assert!(error.starts_with(expected), "{theirs}: {error}");
    }
}

#[test]
fn configs_that_drop_the_delivery_are_refused_or_noted() {
    let payload = payload("");
    let with = |config: &str| {
        let theirs = format!(r#"{{"ignition":{{"version":"3.3.0","config":{config}}}}}"#);
        render(&payload, Some(&theirs))
    };
    let error = with(r#"{"replace":{"source":"https://x/"}}"#).unwrap_err();
    assert!(
        error.starts_with("ignition.config.replace has a source"),
        "{error}"
    );
    let merged = with(r#"{"merge":[{"source":"https://x/"}]}"#).unwrap();
    assert!(note(&merged).unwrap().contains("ignition.config.merge"));
    for harmless in [
        r#"{"replace":null,"merge":[]}"#,
        r#"{"replace":{"source":null}}"#,
        "null",
    ] {
        assert_eq!(note(&with(harmless).unwrap()), None, "{harmless}");
    }
}

/// Go takes keys in any case, and merges those that occur twice.
#[test]
fn keys_that_ignition_reads_in_another_way_are_refused() {
    let payload = payload("");
    for (rest, expected) in [
        (
            r#""storage":{},"storage":{}"#,
            "the key storage occurs twice; remove one of them at line 2 ",
        ),
        (r#""passwd":{},"Passwd":{}"#, "the key Passwd occurs twice"),
        (r#""Storage":{}"#, "write storage in place of Storage at line 2 "),
        (r#""storage":{"FILES":[]}"#, "write files in place of FILES"),
        (
            r#""storage":{"files":[{"Path":"/a"}]}"#,
            "write path in place of Path",
        ),
        (r#""\u017fystemd":{}"#, "write systemd in place of \u{17f}ystemd"),
        (
            r#""systemd":{"units":[{"name":"a.service","dropIns":[]}]}"#,
            "write dropins in place of dropIns",
        ),
    ] {
        let theirs = format!("{{\"ignition\":{{\"version\":\"3.3.0\"}},\n{rest}}}");
        let error = render(&payload, Some(&theirs)).unwrap_err();
        assert!(error.starts_with(expected), "{rest}: {error}");
    }
    let theirs = r#"{"ignition":{"version":"3.3.0"},"passwd":{"users":[{"name":"a","sshAuthorizedKeys":["b"],"uid":1,
        "x":-1.5,"shouldExist":true}]}}"#;
    render(&payload, Some(theirs)).unwrap();
}
