use super::*;

const HEAD: &str = "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\n";

fn problems(text: &str) -> Vec<String> {
    let found = read("d.yaml", &format!("{HEAD}{text}")).err().unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn the_minimal_input_is_valid() {
    let checked = read("d.yaml", HEAD).unwrap();
    assert_eq!(checked.delivery, Delivery::default());
    assert_eq!(checked.settings, Value::Null);
}

#[test]
fn settings_are_kept_as_written() {
    let text = format!("{HEAD}settings: {{ log: {{ level: debug }}, metrics: {{}} }}\n");
    let checked = read("d.yaml", &text).unwrap();
    assert_eq!(
        checked.settings,
        serde_json::json!({"log": {"level": "debug"}, "metrics": {}})
    );
}

#[test]
fn keys_of_earlier_versions_are_named_and_kept_as_written() {
    let text = format!("{HEAD}settings: {{ metrics: {{ rapl: {{ zoneLabel: true }} }} }}\n");
    let checked = read("d.yaml", &text).unwrap();
    let ignored: Vec<String> = checked.ignored.iter().map(ToString::to_string).collect();
    assert_eq!(ignored.len(), 1);
    assert!(
        ignored[0].starts_with("d.yaml:3: settings.metrics.rapl: "),
        "{ignored:?}"
    );
    assert_eq!(
        checked.settings,
        serde_json::json!({"metrics": {"rapl": {"zoneLabel": true}}})
    );
}

/// Each text has one problem, which begins so.
fn expect<T: AsRef<str>>(cases: &[(T, &str)]) {
    for (text, expected) in cases {
        let found = problems(text.as_ref());
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{}: {found:?}, expected {expected}",
            text.as_ref()
        );
    }
}

#[test]
fn errors_about_machines_have_their_line() {
    let sum = "a".repeat(64);
    let sources = "sources: [{url: \"http://x/y\"}]";
    let of = |machine: &str| format!("    {machine}: {{ sha256: {sum}, {sources} }}\n");
    let both = format!("agent:\n  machines:\n{}{}", of("x86_64"), of("aarch64"));
    assert_eq!(problems(&both), [""; 0]);
    expect(&[
        (
            format!("agent:\n  machines:\n{}", of("arm64")),
            "d.yaml:5: agent.machines.arm64: there is no agent for \"arm64\"; use x86_64 or aarch64, as",
        ),
        (
            format!("agent:\n  sha256: {sum}\n  machines:\n{}", of("x86_64")),
            "d.yaml:3: agent: with agent.machines, set sha256 or file",
        ),
        (
            format!("agent:\n  machines:\n    x86_64: {{ {sources} }}\n"),
            "d.yaml:5: agent.machines.x86_64: set either sha256 or file",
        ),
        (
            format!("agent:\n  machines:\n    x86_64: {{ sha256: {sum} }}\n"),
            "d.yaml:5: agent.machines.x86_64.sources: empty",
        ),
        (
            format!(
                "agent:\n  machines:\n    x86_64:\n      sha256: {sum}\n      sources:\n      - url: ftp://x\n"
            ),
            "d.yaml:8: agent.machines.x86_64.sources[0].url: \"ftp://x\" is not a URL",
        ),
    ]);
}

#[test]
fn errors_about_the_agent_have_their_line() {
    let sum = "a".repeat(64);
    let url = "sources: [{url: \"http://x/y\"}]";
    expect(&[
        (
            format!("agent:\n  {url}\n"),
            "d.yaml:3: agent: set either sha256 or file",
        ),
        (
            format!("agent:\n  sha256: abc\n  {url}\n"),
            "d.yaml:4: agent.sha256: not 64 hexadecimal digits",
        ),
        (
            format!("agent:\n  sha256: {sum}\n  file: x\n  {url}\n"),
            "d.yaml:3: agent: set either",
        ),
        (
            format!("agent:\n  sha256: {sum}\n"),
            "d.yaml:3: agent.sources: empty",
        ),
        (
            format!("agent:\n  version: a b\n  sha256: {sum}\n  {url}\n"),
            "d.yaml:4: agent.version: one word",
        ),
        (
            format!("agent:\n  sha256: {sum}\n  sources:\n  - {{}}\n"),
            "d.yaml:6: agent.sources[0]: set either disk or url",
        ),
        (
            format!("agent:\n  sha256: {sum}\n  sources:\n  - url: ftp://x\n"),
            "d.yaml:6: agent.sources[0].url: \"ftp://x\" is not a URL",
        ),
        (
            format!("agent:\n  sha256: {sum}\n  sources:\n  - url: \"http://x/$(id) y\"\n"),
            "d.yaml:6: agent.sources[0].url: ",
        ),
        (
            format!("agent:\n  sha256: {sum}\n  sources:\n  - disk: {{label: \"a b\", path: x}}\n"),
            "d.yaml:6: agent.sources[0].disk.label: ",
        ),
        (
            format!("agent:\n  sha256: {sum}\n  sources:\n  - disk: {{label: a, path: ../x}}\n"),
            "d.yaml:6: agent.sources[0].disk.path: ",
        ),
    ]);
}

#[test]
fn all_other_errors_have_their_line() {
    expect(&[
        ("wiat: 90s\n", "d.yaml:3: wiat: unknown key"),
        (
            "settings:\n  log: {levle: debug}\n",
            "d.yaml:4: settings.log.levle: unknown key",
        ),
        (
            "settings:\n  log: {level: loud}\n",
            "d.yaml:4: settings.log.level: ",
        ),
        ("wait: 5s\n", "d.yaml:3: wait: 5s is not between 10s and 10m"),
        ("wait: 11m\n", "d.yaml:3: wait: 11m"),
        (
            "tls: {certificate: a, key: b}\n",
            "d.yaml:3: tls.clientCA: required",
        ),
        (
            "tls:\n  enrolment: true\n  key: b\n",
            "d.yaml:5: tls.key: remove it: with tls.enrolment",
        ),
        (
            "tls:\n  enrolment: true\n  certificate: b\n",
            "d.yaml:5: tls.certificate: remove it",
        ),
        (
            "tls: {certificate: a, key: b, clientCA: c}\nsettings:\n  server: {tls: {key: /k}}\n",
            "d.yaml:5: settings.server.tls: tls delivers these files",
        ),
        (
            "files:\n- {path: x, content: a}\n",
            "d.yaml:4: files[0].path: \"x\" is not an absolute path",
        ),
        (
            "files:\n- {path: /a/../b, content: a}\n",
            "d.yaml:4: files[0].path: ",
        ),
        (
            "files:\n- {path: \"/a;reboot\", content: a}\n",
            "d.yaml:4: files[0].path: ",
        ),
        (
            "files:\n- {path: /var/lib/cloud/x, content: a}\n",
            "d.yaml:4: files[0].path: `cloud-init clean`",
        ),
        (
            "files:\n- {path: /run/x, content: a}\n",
            "d.yaml:4: files[0].path: this folder is empty",
        ),
        (
            "files:\n- {path: /etc/virtfleet/agent.d/50-delivery.yaml, content: a}\n",
            "d.yaml:4: files[0].path: the delivery itself",
        ),
        (
            "files:\n- {path: /a, content: a}\n- {path: /a, content: a}\n",
            "d.yaml:5: files[1].path: /a is listed",
        ),
        (
            "files:\n- {path: /a, content: a, mode: \"0999\"}\n",
            "d.yaml:4: files[0].mode: ",
        ),
        (
            "files:\n- {path: /a}\n",
            "d.yaml:4: files[0]: set either content or from",
        ),
    ]);
}
