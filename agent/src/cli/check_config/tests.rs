use std::fs;

use tempfile::TempDir;

use super::*;

const HEAD: &str = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n";
const TLS: &str = "server:\n  tls:\n    certificate: /c\n    key: /k\n    clientCA: /ca\n";

/// A root filesystem with these files. `HEAD` is prepended to each non-empty file.
fn root(files: &[(&str, &str)]) -> (TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let head = if text.is_empty() { "" } else { HEAD };
        fs::write(path, format!("{head}{text}")).unwrap();
    }
    let roots = Roots {
        rootfs: dir.path().to_owned(),
        ..Roots::default()
    };
    (dir, roots)
}

#[test]
fn check_config_reports_ok_and_the_origin_of_each_setting() {
    let (_dir, roots) = root(&[
        ("/etc/virtfleet/agent.yaml", TLS),
        (
            "/etc/virtfleet/agent.d/10-log.yaml",
            "log: {level: debug}\nmetrics:\n  collectors: {cpu: false}\n",
        ),
        ("/usr/lib/virtfleet/agent.d/10-log.yaml", "log: {level: trace}\n"),
    ]);
    let checked = check_config(&roots, None, true, Output::Text).unwrap();
    assert!(checked.valid);
    insta::assert_snapshot!("check_config_ok", checked.text);
    let json = check_config(&roots, None, true, Output::Json).unwrap().text;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["valid"], true);
    let keys: Vec<&Value> = json["settings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["key"])
        .collect();
    assert!(keys.contains(&&Value::from("log.format")), "{keys:?}");
    let yaml = check_config(&roots, None, true, Output::Yaml).unwrap().text;
    assert_eq!(
        virtfleet_wire::layered::parse_yaml(&yaml).unwrap()[0].to_json(),
        json
    );
}

#[test]
fn keys_of_earlier_versions_are_named_and_no_problem() {
    let (_dir, roots) = root(&[
        ("/etc/virtfleet/agent.yaml", TLS),
        (
            "/etc/virtfleet/agent.d/10-old.yaml",
            "metrics:\n  rapl: {zoneLabel: true}\n",
        ),
    ]);
    let checked = check_config(&roots, None, true, Output::Text).unwrap();
    assert!(checked.valid);
    let expected =
        "ok\n\nignored:\n  /etc/virtfleet/agent.d/10-old.yaml:4: metrics.rapl: no longer has an effect";
    assert!(checked.text.starts_with(expected), "{}", checked.text);

    let wrong = format!("{TLS}metrics: {{rapl: {{}}, rpl: 1}}\n");
    let (_dir, roots) = root(&[("/etc/virtfleet/agent.yaml", &wrong)]);
    let checked = check_config(&roots, None, true, Output::Text).unwrap();
    assert!(!checked.valid);
    let expected = "/etc/virtfleet/agent.yaml:8: metrics.rpl: unknown key\n\n\
                    ignored:\n  /etc/virtfleet/agent.yaml:8: metrics.rapl: no longer";
    assert!(checked.text.starts_with(expected), "{}", checked.text);
}

#[test]
fn check_config_lists_every_problem() {
    let (dir, roots) = root(&[
        (
            "/etc/virtfleet/agent.yaml",
            "sever:\n  maxRequests: 1\nserver:\n  listeners:\n  - name: default\n    port: 1\n",
        ),
        ("/etc/virtfleet/agent.d/10.yaml", "log: {level: loud}\n"),
        (
            "/etc/virtfleet/agent.d/20.yaml",
            "metrics:\n  collectors: [cpu]\n",
        ),
    ]);
    fs::write(dir.path().join("etc/virtfleet/agent.d/30.yaml"), "kind: [\n").unwrap();
    let checked = check_config(&roots, None, true, Output::Text).unwrap();
    assert!(!checked.valid);
    insta::assert_snapshot!("check_config_problems", checked.text);

    let alone = check_config(&roots, Some(&dir.path().join("nowhere.yaml")), true, Output::Text).unwrap();
    assert!(
        !alone.valid && alone.text.contains("nowhere.yaml: cannot be read: no such file"),
        "{}",
        alone.text
    );
}

#[test]
fn a_part_of_the_settings_may_be_incomplete() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("part.yaml");
    let head = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n";
    let check = |text: &str, whole| {
        fs::write(&file, format!("{head}{text}")).unwrap();
        check_config(&Roots::default(), Some(&file), whole, Output::Text).unwrap()
    };
    let part = check("log: {level: debug}\n", false);
    assert!(part.valid, "{}", part.text);
    assert!(
        !check("log: {level: debug}\n", true).valid,
        "alone it lacks certificates"
    );
    let wrong = check("log: {levle: debug}\n", false);
    assert!(!wrong.valid && wrong.text.contains("part.yaml:3: log.levle") && wrong.text.lines().count() == 1);
}
