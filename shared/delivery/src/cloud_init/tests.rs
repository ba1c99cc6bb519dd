use virtfleet_wire::layered::parse_yaml;

use super::*;
use crate::{
    payload::{Outside, build},
    spec,
};

const MADE: &str = "# made\n";

pub(crate) fn payload(more: &str) -> Payload {
    let sum = "a".repeat(64);
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\nagent:\n  sha256: {sum}\n  version: 1.2.3\n  sources:\n  - \
         disk: {{label: virtfleet, path: /bin/agent}}\n  - url: https://mirror.example/agent\n{more}"
    );
    let checked = spec::read("d.yaml", &text).unwrap();
    let mut outside = Outside {
        read: &mut |name| match name {
            "key" => Ok(b"-----BEGIN EC PRIVATE KEY-----\nx\n".to_vec()),
            "absent" => Err("no such file".to_owned()),
            _ => Ok(b"-----BEGIN CERTIFICATE-----\nx\n".to_vec()),
        },
        sha256: &mut |_| Ok("B".repeat(64)),
        fleet_ca: &mut || Ok(b"-----BEGIN CERTIFICATE-----\nfleet\n".to_vec()),
    };
    build(&checked, &mut outside).unwrap()
}

fn with(text: &str) -> With<'_> {
    With {
        name: "dir/user data",
        text,
    }
}

#[test]
fn the_request_file_has_all_values() {
    let payload = payload("tls: {certificate: c, key: key, clientCA: ca}\nrepairCloudInit: false\n");
    let text = |path: &str| {
        let file = payload.files.iter().find(|file| file.path == path).unwrap();
        (file.mode, String::from_utf8(file.content.clone()).unwrap())
    };
    let (_, wanted) = text(crate::WANTED);
    assert_eq!(
        wanted,
        format!(
            "sha256 {}\nversion 1.2.3\ndisk virtfleet bin/agent\nurl https://mirror.example/agent\ngroup virtfleet \
             /etc/virtfleet/tls/agent.key\nrepair no\n",
            "a".repeat(64)
        )
    );
    assert_eq!(text("/etc/virtfleet/tls/agent.key").0, 0o640);
    let (_, settings) = text("/etc/virtfleet/agent.d/50-delivery.yaml");
    let settings = parse_yaml(&settings).unwrap().remove(0).to_json();
    assert_eq!(settings["server"]["tls"]["clientCA"], "/etc/virtfleet/tls/ca.crt");
    assert_eq!(settings["dns"]["manage"], "auto");
    assert_eq!(settings["nic"]["multiqueue"], "auto");
    assert_eq!(settings["metrics"]["profile"], "dashboards");
    assert_eq!((payload.wait, payload.binaries[0].machine.as_deref()), (90, None));
    assert!(
        payload.unit.contains("\nTimeoutStartSec=150\n"),
        "{}",
        payload.unit
    );
}

#[test]
fn missing_files_and_wrong_pem_are_named_with_their_line() {
    let text = "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\ntls:\n  certificate: absent\n  key: cert\n  clientCA: \
                ca\nfiles:\n- {path: /x, from: absent}\n";
    let checked = spec::read("d.yaml", text).unwrap();
    let mut outside = Outside {
        read: &mut |name| match name {
            "absent" => Err("no such file".to_owned()),
            _ => Ok(b"-----BEGIN CERTIFICATE-----\nx\n".to_vec()),
        },
        sha256: &mut |_| Ok(String::new()),
        fleet_ca: &mut || Err("not asked".to_owned()),
    };
    let found = build(&checked, &mut outside).unwrap_err();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "d.yaml:4: tls.certificate: absent cannot be read: no such file",
            "d.yaml:5: tls.key: cert has no PEM block of the type PRIVATE KEY",
            "d.yaml:8: files[0].from: absent cannot be read: no such file",
        ]
    );
}

#[test]
fn enrolment_delivers_the_authority_and_no_secret() {
    for (tls, authority) in [
        ("tls: {enrolment: true}\n", "fleet"),
        ("tls: {enrolment: true, clientCA: ca}\n", "x"),
    ] {
        let payload = payload(tls);
        let certificates: Vec<_> = payload
            .files
            .iter()
            .filter(|file| file.path.starts_with("/etc/virtfleet/tls/"))
            .collect();
        assert_eq!(certificates.len(), 1);
        assert_eq!(certificates[0].path, "/etc/virtfleet/tls/ca.crt");
        let content = String::from_utf8(certificates[0].content.clone()).unwrap();
        assert_eq!(content, format!("-----BEGIN CERTIFICATE-----\n{authority}\n"));
        let settings = payload
            .files
            .iter()
            .find(|file| file.path == crate::payload::SETTINGS);
        let settings = String::from_utf8(settings.unwrap().content.clone()).unwrap();
        let settings = parse_yaml(&settings).unwrap().remove(0).to_json();
        let expected = serde_json::json!({ "enrolment": true, "clientCA": "/etc/virtfleet/tls/ca.crt" });
        assert_eq!(settings["server"]["tls"], expected);
        for file in &payload.files {
            let content = String::from_utf8_lossy(&file.content);
            assert!(!content.contains("PRIVATE KEY"), "{}", file.path);
        }
        let wanted = payload.files.iter().find(|file| file.path == crate::WANTED);
        assert!(
            !String::from_utf8_lossy(&wanted.unwrap().content).contains("group "),
            "no key, so no group for it"
        );
    }
}

#[test]
fn a_private_key_is_never_taken_for_an_authority() {
    for (tls, line) in [
        (
            "{enrolment: true, clientCA: key}",
            "d.yaml:3: tls.clientCA: key contains a private key",
        ),
        (
            "{enrolment: true}",
            "d.yaml:3: tls.clientCA: the fleet's authority contains a private key",
        ),
        (
            "{certificate: c, key: key, clientCA: key}",
            "d.yaml:3: tls.clientCA: key contains a private key",
        ),
    ] {
        let text = format!("apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\ntls: {tls}\n");
        let checked = spec::read("d.yaml", &text).unwrap();
        let both = || Ok(b"-----BEGIN CERTIFICATE-----\nx\n-----BEGIN EC PRIVATE KEY-----\nx\n".to_vec());
        let mut outside = Outside {
            read: &mut |name| match name {
                "key" => both(),
                _ => Ok(b"-----BEGIN CERTIFICATE-----\nx\n".to_vec()),
            },
            sha256: &mut |_| Ok(String::new()),
            fleet_ca: &mut || both(),
        };
        let found = build(&checked, &mut outside).unwrap_err();
        assert!(
            found.len() == 1 && found[0].to_string().starts_with(line),
            "{found:?}"
        );
    }
}

#[test]
fn a_cloud_config_starts_with_the_boot_command() {
    let payload = payload("");
    let alone = render(&payload, Form::CloudConfig, &[], MADE).unwrap();
    assert!(alone.text.starts_with("#cloud-config\n# made\n") && alone.notes.is_empty());
    let document = parse_yaml(&alone.text).unwrap().remove(0).to_json();
    assert_eq!(document["bootcmd"][0], script::boot_command(&payload));

    let theirs = "#cloud-config\n# their comment\nbootcmd:\n- theirs\npackages: [jq]\n";
    let merged = render(&payload, Form::CloudConfig, &[with(theirs)], MADE).unwrap();
    assert!(
        merged
            .text
            .starts_with("#cloud-config\n# made\n# their comment\nbootcmd:\n- |\n")
    );
    let document = parse_yaml(&merged.text).unwrap().remove(0).to_json();
    assert_eq!(document["bootcmd"][1], "theirs");
    assert_eq!(document["packages"][0], "jq");
    assert_eq!(document["merge_how"], serde_json::Value::Null, "theirs to say");
}

#[test]
fn user_data_is_recognised_as_cloud_init_does() {
    let payload = payload("");
    let render = |text: &str, form| render(&payload, form, &[with(text)], MADE);
    // cloud-init ignores white space before it, and case. It must come first in the output.
    for text in [
        "\n\n#cloud-config\npackages: [jq]\n",
        " \t\u{1f}\u{a0}#Cloud-Config\npackages: [jq]\n",
    ] {
        let rendered = render(text, Form::CloudConfig).unwrap();
        let head = rendered.text.to_ascii_lowercase();
        assert!(
            head.starts_with("#cloud-config\n# made\npackages: [jq]\nbootcmd:\n"),
            "{head}"
        );
        assert_eq!(rendered.notes, [""; 0]);
    }
    for (text, part) in [
        ("\n#!/bin/sh\necho hi\n", "\n\n#!/bin/sh\necho hi\n\n--"),
        (
            "\r\n ## Template: Jinja\n#cloud-config\n",
            "\n\n## Template: Jinja\n",
        ),
        (
            "\nMIME-Version: 1.0\n x\n\ny",
            "\n--virtfleet-part\nMIME-Version: 1.0\n x\n\ny\n--",
        ),
    ] {
        let rendered = render(text, Form::Mime).unwrap();
        assert!(rendered.text.contains(part), "{}", rendered.text);
    }
    for text in [
        "",
        "---\n#cloud-config\n",
        "\u{feff}#cloud-config\n",
        "I2Nsb3VkLWNvbmZpZwo=",
        "# cloud-config\n",
        "## template:jinja\n",
        "text\nMIME-Version: 1.0\n",
        "a: b\n\nMIME-Version: 1.0\n",
    ] {
        let error = render(text, Form::Mime).unwrap_err();
        assert!(
            error.contains("cloud-init does not recognise its first line"),
            "{text}: {error}"
        );
    }
    for (text, line) in [
        (
            "\n\n#cloud-config\n\ta: b\n",
            "4: cloud-init cannot load this: a tab here",
        ),
        ("#cloud-config\n- a\n", "2: a cloud-config must be a mapping"),
        (
            "#cloud-config-archive\na: b\n",
            "2: a cloud-config-archive must be a list",
        ),
        (
            "\n#cloud-config\nbootcmd:\n- 5\n",
            "4: virtfleetctl does not support an item of bootcmd",
        ),
    ] {
        let error = render(text, Form::Mime).unwrap_err();
        assert!(
            error.starts_with(&format!("dir/user data:{line}")),
            "{text}: {error}"
        );
    }
}

#[test]
fn what_is_not_as_the_user_may_expect_is_noted() {
    let payload = payload("");
    let text = "\n#cloud-config\nruncmd:\n- echo a\nruncmd:\n- echo b\n";
    let rendered = render(&payload, Form::CloudConfig, &[with(text)], MADE).unwrap();
    assert!(
        rendered
            .text
            .contains("\n# made\nruncmd:\n- echo a\nruncmd:\n- echo b\nbootcmd:\n- |\n")
    );
    assert_eq!(
        rendered.notes,
        ["dir/user data:5: the key runcmd occurs twice; cloud-init takes the last one"]
    );
    // A line feed would become part of the last value.
    let text = "#cloud-config\nwrite_files:\n- path: /x\n  content: |\n    abc";
    let rendered = render(&payload, Form::CloudConfig, &[with(text)], MADE).unwrap();
    assert!(
        rendered
            .text
            .contains(&format!("\n\n{text}\n--virtfleet-part--\n")),
        "{}",
        rendered.text
    );
    assert_eq!(
        rendered.notes,
        [
            "dir/user data: the boot command cannot be added without changing the rest, so the output is a MIME message"
        ]
    );
}

#[test]
fn scripts_of_equal_names_are_all_kept_in_their_order() {
    let with =
        [("b/run.sh", "#!/bin/sh\n"), ("a/run.sh", "#!/bin/sh\n")].map(|(name, text)| With { name, text });
    let text = render(&payload(""), Form::Mime, &with, MADE).unwrap().text;
    let place = |name: &str| text.find(&format!("filename=\"{name}\"")).unwrap();
    assert!(place("01-run.sh") < place("02-run.sh"));
}

#[test]
fn a_part_with_carriage_returns_is_encoded() {
    let payload = payload("");
    let rendered = render(&payload, Form::Mime, &[with("#!/bin/sh\r\necho\r")], MADE).unwrap();
    assert!(
        rendered.text.contains("\n\nIyEvYmluL3NoDQplY2hvDQ==\n"),
        "{}",
        rendered.text
    );
}

#[test]
fn other_types_and_texts_that_cannot_be_extended_become_parts() {
    let payload = payload("");
    for (theirs, kind) in [
        ("#cloud-config\nbootcmd: [a]\n", "text/cloud-config"),
        ("#!/bin/sh\necho é\n", "text/x-shellscript"),
        (
            "## template: jinja\n#cloud-config\nx: {{ v1.region }}\n",
            "text/jinja2",
        ),
        ("#include\nhttps://x/\n", "text/x-include-url"),
        (
            "#cloud-config-archive\n- '#!/bin/sh'\n",
            "text/cloud-config-archive",
        ),
    ] {
        let rendered = render(&payload, Form::CloudConfig, &[with(theirs)], MADE).unwrap();
        let fetched = rendered
            .notes
            .iter()
            .any(|note| note.contains("fetches these addresses"));
        assert_eq!(fetched, kind == "text/x-include-url", "{theirs}");
        assert_eq!(rendered.notes.len(), 1 + usize::from(fetched), "{theirs}");
        let hook = rendered.text.find("Content-Type: text/cloud-boothook").unwrap();
        let part = rendered.text.find(&format!("Content-Type: {kind}; ")).unwrap();
        assert!(hook < part, "{theirs}");
        let log = "\n(: >>\"$log\") 2>/dev/null && exec >>\"$log\" 2>&1\n";
        assert!(rendered.text.contains(log), "{}", rendered.text);
        assert!(rendered.text.contains("filename=\"user_data\""));
        assert!(!theirs.is_ascii() || rendered.text.contains(theirs), "{theirs}");
    }
    let mime = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"virtfleet-part\"\n\n--virtfleet-part--\n";
    let nested = render(&payload, Form::Mime, &[with(mime)], MADE).unwrap();
    assert!(
        nested.notes[0].contains("a MIME message are not checked"),
        "{:?}",
        nested.notes
    );
    assert!(
        nested
            .text
            .contains("\n--virtfleet-partx\nMIME-Version: 1.0\nContent-Type: multipart/mixed")
    );
    let error = render(&payload, Form::Mime, &[with("hello")], MADE).unwrap_err();
    assert!(
        error.starts_with("dir/user data: cloud-init does not recognise its first line"),
        "{error}"
    );
}
