use super::*;
use crate::cloud_init::tests::payload;

fn scripts(payload: &Payload) -> [String; 2] {
    [
        script(payload, Mechanism::BootCommand),
        script(payload, Mechanism::Files),
    ]
}

#[test]
fn readable_content_is_written_as_plain_text() {
    assert_eq!(plain(b"a\tb\n"), Some("a\tb\n"));
    for odd in [
        &b""[..],
        b"no end",
        b"cr\r\n",
        b"\xc3\xa9\n",
        b"\xff\n",
        b"{{ x }}\n",
        b"${#x}\n",
        b"a\nEND\nb\n",
        b"a\nVIRTFLEET_END\nb\n",
    ] {
        assert_eq!(plain(odd), None, "{odd:?}");
    }
}

#[test]
fn packaged_texts_pass_through_every_form() {
    let payload = payload("tls: {certificate: c, key: key, clientCA: ca}\n");
    for text in scripts(&payload) {
        assert!(text.is_ascii(), "{text}");
        // The markers are those of the script itself.
        let other = text.replace("\nEND\n", "\n");
        assert!(plain(other.as_bytes()).is_some(), "{text}");
    }
    let command = boot_command(&payload);
    assert!(
        command.starts_with("(\numask 077\n"),
        "the files may be secret: {command}"
    );
    for mark in ["@WAIT@", "@SECONDS@", "@LIMIT@", "@SCRIPT@"] {
        assert!(!command.contains(mark), "{mark}: {command}");
    }
}

#[test]
fn comments_indentation_and_empty_lines_are_left_out() {
    let text = "#!/bin/sh\n# why\n\nif a; then\n    # why\n    b # c\nfi\n";
    assert_eq!(compact(text), "#!/bin/sh\nif a; then\nb # c\nfi\n");
}

#[test]
fn each_script_has_only_what_it_needs() {
    let both = scripts(&payload("tls: {enrolment: true}\n"));
    for text in &both {
        let parts = [
            "\nsha=aaaaaaaa",
            "\nend=$((67 - $(left)))\n",
            "try disk virtfleet bin/agent ||\ntry url https://mirror.example/agent\n",
            "\ndisk() {\n",
            "\nurl() {\n",
            "\nuntil installed; do\n",
        ];
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("uname") && !text.contains("chgrp"), "{text}");
        assert!(text.ends_with("\nflush\n"), "{text}");
    }
    // The boot command keeps the script and its unit in place. Elsewhere both are files of the
    // mechanism, and cloud-init cannot be run again.
    for part in [
        "put 700 var/lib/virtfleet/delivery/deliver <\"$0\"",
        "put 644 etc/systemd/system/virtfleet-delivery.service <<",
        "multi-user.target.wants",
        "cloud-init clean",
        "python3",
    ] {
        assert!(both[0].contains(part) && !both[1].contains(part), "{part}");
    }

    let text =
        "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\ntls: {certificate: c, key: k, clientCA: a}\n";
    let checked = crate::spec::read("d.yaml", text).unwrap();
    let pem = |name: &str| {
        let kind = if name == "k" { "PRIVATE KEY" } else { "CERTIFICATE" };
        format!("-----BEGIN {kind}-----\nx\n")
    };
    let mut outside = crate::payload::Outside {
        read: &mut |name| Ok(pem(name).into_bytes()),
        sha256: &mut |_| Err("not used".to_owned()),
        fleet_ca: &mut || Err("not used".to_owned()),
    };
    let baked = crate::payload::build(&checked, &mut outside).unwrap();
    for text in scripts(&baked) {
        assert!(
            !text.contains("installed()") && !text.contains("end="),
            "the image has the agent: {text}"
        );
        assert!(text.contains("put 640 etc/virtfleet/tls/agent.key <<"), "{text}");
        assert!(
            text.contains("chgrp virtfleet etc/virtfleet/tls/agent.key"),
            "{text}"
        );
    }
}

#[test]
fn each_machine_has_its_own_request() {
    let sums = ["b".repeat(64), "c".repeat(64)];
    let mut payload = payload("");
    let binary = |machine: &str, sum: &str| AgentBinary {
        machine: Some(machine.to_owned()),
        sha256: sum.to_owned(),
        sources: vec![Source {
            disk: None,
            url: Some(format!("https://x/{machine}")),
        }],
    };
    payload.binaries = vec![binary("aarch64", &sums[0]), binary("x86_64", &sums[1])];
    let expected = format!(
        "\ncase $(uname -m) in\naarch64)\nsha={}\nsources() {{\ntry url https://x/aarch64\n}}\n;;\nx86_64)\nsha={}\n\
         sources() {{\ntry url https://x/x86_64\n}}\n;;\n*) refuse \"this machine is $(uname -m), and user-data has the \
         agent only for aarch64 x86_64 (agent.machines)\" ;;\nesac\n",
        sums[0], sums[1]
    );
    for text in scripts(&payload) {
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn words_are_quoted_for_the_shell() {
    for (word, expected) in [
        ("https://x/y%20z", "https://x/y%20z"),
        ("https://x/?a=b&c", "'https://x/?a=b&c'"),
        ("a b", "'a b'"),
        ("it's;$(x)", "'it'\\''s;$(x)'"),
    ] {
        assert_eq!(quoted(word), expected);
    }
}

#[test]
fn other_content_is_encoded() {
    let payload = payload("files:\n- {path: /etc/x, mode: \"0600\", content: \"é\"}\n");
    for text in scripts(&payload) {
        assert!(
            text.contains("\nput 600 etc/x 'base64 -d' <<'END'\nw6k=\nEND\n"),
            "{text}"
        );
    }
}
