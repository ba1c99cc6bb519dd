//! What `virtfleetctl render` refuses: settings that the agent would refuse, user-data without TLS,
//! broken user-data.

use std::fs;

use virtfleet_tests::{bins, process::Launch};

use super::guest::COMMAND_TIMEOUT;

const HEAD: &str = "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\n";
const TLS: &str = "  server: { tls: { certificate: /c, key: /k, clientCA: /a } }\n";

/// Exit code, standard output and standard error of `virtfleetctl render` for an input, from
/// standard input.
fn render(input: &str, args: &[&str]) -> (i32, String, String) {
    let as_text = (args[0] == "cloud-init").then_some("--text");
    let launch = Launch::new(bins::ctl().unwrap())
        .arg("render")
        .args(args)
        .args(as_text)
        .arg("-");
    let output = launch
        .stdin(format!("{HEAD}{input}"))
        .output(COMMAND_TIMEOUT)
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn what_the_agent_refuses_is_not_rendered() {
    for (input, expected) in [
        (
            "metrics: { netdev: { deviceInclude: \"(\" } }",
            "standard input:5: settings.metrics.netdev.deviceInclude: \"(\" is not a regular expression",
        ),
        (
            "metrics: { collectors: { cpux: true } }",
            "standard input:5: settings.metrics.collectors.cpux: there is no collector \"cpux\"; did you mean \"cpu\"?",
        ),
        (
            "disks: [{ name: data, match: { serial: a }, mountPoint: /etc }]",
            "standard input:5: settings.disks[data].mountPoint: /etc is needed by the system",
        ),
        (
            "dns: { manage: auto, probe: { timeout: 0s } }",
            "standard input:5: settings.dns.probe.timeout: ",
        ),
        (
            "nic: { multiqueue: auto, settle: 0s }",
            "standard input:5: settings.nic.settle: ",
        ),
    ] {
        for what in ["cloud-init", "ignition"] {
            let (code, out, err) = render(&format!("settings:\n{TLS}  {input}\n"), &[what]);
            assert_eq!((code, out.as_str()), (1, ""), "{input}: {err}");
            assert!(err.contains(expected), "{input}: {err}");
        }
    }
    // A file that the input brings is a settings file, too, and it may be the one that repairs
    // another.
    let fragment = |content: &str| {
        format!(
            "settings:\n{TLS}files:\n- path: /etc/virtfleet/agent.d/60-more.yaml\n  content: |\n    apiVersion: \
             virtfleet.io/v1alpha1\n    kind: AgentConfig\n    {content}\n"
        )
    };
    let (code, out, err) = render(&fragment("log: { levle: debug }"), &["cloud-init"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(
        err.contains(
            "standard input:6: files[0]: /etc/virtfleet/agent.d/60-more.yaml:3: log.levle: unknown key (did you mean level?)"
        ),
        "{err}"
    );
    let (code, _, err) = render(&fragment("log: { level: debug }"), &["cloud-init"]);
    assert_eq!(code, 0, "{err}");
}

#[test]
fn user_data_without_tls_is_refused() {
    let plain =
        "settings:\n  server: { listeners: [{ name: default, address: \"127.0.0.1:1\", plain: true }] }\n";
    for input in ["", "settings: { log: { level: debug } }\n", plain] {
        let (code, out, err) = render(input, &["cloud-init"]);
        assert_eq!((code, out.as_str()), (1, ""), "{input}: {err}");
        assert!(
            err.contains(": settings.server.tls: no certificate is set") && err.contains("--without-tls"),
            "{err}"
        );
        let (code, out, err) = render(input, &["cloud-init", "--without-tls"]);
        assert_eq!(code, 0, "{err}");
        assert!(out.starts_with("#cloud-config\n"), "{out}");
        assert!(err.contains("warning: --without-tls: "), "{err}");
    }
    // One file of three is a mistake with the flag as well.
    let (code, out, err) = render(
        "settings: { server: { tls: { key: /k } } }\n",
        &["ignition", "--without-tls"],
    );
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(
        err.contains("needs server.tls.certificate, server.tls.clientCA"),
        "{err}"
    );
}

#[test]
fn broken_user_data_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let config = file("config", "#cloud-config\npackages: [a\nruncmd: b]: c\n");
    let archive = file("archive", "#cloud-config-archive\n- a\n b: [\n");
    let json = file("json", "{\"ignition\":\n{,}\n");
    let input = format!("settings:\n{TLS}");
    for (what, with, expected) in [
        ("cloud-init", config.as_str(), "config:3: "),
        ("cloud-init", &archive, "archive:3: "),
        ("ignition", &json, "json:2: not JSON"),
    ] {
        let (code, out, err) = render(&input, &[what, "--with", with]);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(expected), "{err}");
    }
    let merging = file(
        "merging",
        r#"{"ignition":{"version":"3.3.0","config":{"merge":[{"source":"https://x/"}]}}}"#,
    );
    let (code, _, err) = render(&input, &["ignition", "--with", &merging]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("note: Ignition merges the configurations"), "{err}");
    let (code, out, err) = render(&input, &["cloud-init", "--with", "-"]);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("standard input can be read only once"), "{err}");
}
