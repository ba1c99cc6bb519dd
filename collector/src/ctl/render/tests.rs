use std::fs;

use clap::Parser as _;

use super::*;
use crate::ctl::cli::{Program, TopLevelCommand};

fn rendered(folder: &Path, input: &str, args: &[&str]) -> (Result<(), String>, String, String) {
    fs::write(
        folder.join("d.yaml"),
        format!("apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\n{input}"),
    )
    .unwrap();
    let file = folder.join("d.yaml").display().to_string();
    let (verb, rest) = args.split_first().unwrap();
    let line = ["virtfleetctl", "render", verb, &file]
        .into_iter()
        .chain(rest.iter().copied());
    let TopLevelCommand::Render(what) = Program::try_parse_from(line).unwrap().command else {
        panic!("not render")
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        out: &mut out,
        err: &mut err,
        colour: false,
        terminal: false,
        now: || 0,
    };
    let done = run(&what, &mut console).map_err(|fail| {
        assert_eq!(fail.exit_code(), 1);
        fail.to_string()
    });
    (
        done,
        String::from_utf8(out).unwrap(),
        String::from_utf8(err).unwrap(),
    )
}

const AGENT: &str = "agent: {file: agent, sources: [{url: \"https://x/y\"}]}\nsettings: {server: {tls: {certificate: /c, key: /k, clientCA: /a}}}\n";

#[test]
fn files_of_the_input_are_read_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("agent"), "abc").unwrap();
    let (done, out, err) = rendered(folder.path(), AGENT, &["cloud-init"]);
    done.unwrap();
    assert!(
        out.starts_with("#cloud-config\n# Made by `virtfleetctl render cloud-init "),
        "{out}"
    );
    assert!(out.contains("sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"));
    assert!(
        err.contains("KubeVirt accepts at most 2048") && err.contains("Secret"),
        "{err}"
    );
    let (done, out, _) = rendered(folder.path(), AGENT, &["cloud-init", "--form", "mime"]);
    done.unwrap();
    assert!(out.starts_with("MIME-Version: 1.0\n"), "{out}");
    let (done, out, _) = rendered(folder.path(), AGENT, &["ignition"]);
    done.unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["systemd"].is_object());
}

/// The author of the input must not choose which files of this machine are sent.
#[test]
fn files_elsewhere_require_an_option() {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("delivery");
    fs::create_dir_all(folder.join("more")).unwrap();
    fs::write(around.path().join("secret"), "theirs").unwrap();
    fs::write(folder.join("more/motd"), "hello").unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    let absolute = around.path().join("secret").display().to_string();
    let send = |from: &str, args: &[&str]| {
        let input = format!("files: [{{path: /etc/virtfleet/x, from: {from}}}]\n");
        rendered(
            &folder,
            &input,
            &[&["cloud-init", "--without-tls"], args].concat(),
        )
    };
    for from in ["../secret", "link", &absolute] {
        let (done, out, _) = send(from, &[]);
        let error = done.unwrap_err();
        assert!(
            error.contains("files[0].from") && error.contains("--files-from-anywhere"),
            "{error}"
        );
        assert_eq!(out, "");
        send(from, &["--files-from-anywhere"]).0.unwrap();
    }
    send("more/motd", &[]).0.unwrap();
}

#[test]
fn errors_have_a_place_and_nothing_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("theirs"), "hello").unwrap();
    let theirs = folder.path().join("theirs").display().to_string();
    fs::write(
        folder.path().join("broken"),
        "#cloud-config\npackages: [a\nruncmd: b]: c\n",
    )
    .unwrap();
    let broken = folder.path().join("broken").display().to_string();
    fs::write(folder.path().join("list"), "#cloud-config\n- packages\n").unwrap();
    let list = folder.path().join("list").display().to_string();
    for (input, args, expected) in [
        (
            AGENT,
            vec!["cloud-init"],
            "d.yaml:3: agent.file: agent cannot be read: ",
        ),
        ("wiat: 1s\nwait: 1h\n", vec!["cloud-init"], "d.yaml:3: wiat: "),
        (
            "",
            vec!["cloud-init", "--without-tls", "--with", &theirs],
            "cloud-init does not recognise its first line",
        ),
        (
            "",
            vec!["cloud-init", "--without-tls", "--with", "/nowhere"],
            "/nowhere: cannot be read: ",
        ),
        (
            "",
            vec!["ignition", "--without-tls", "--with", &theirs],
            "theirs:1: not JSON",
        ),
        (
            "",
            vec!["cloud-init", "--without-tls", "--with", &broken],
            "broken:3: ",
        ),
        (
            "",
            vec!["cloud-init", "--without-tls", "--form", "mime", "--with", &list],
            "list:2: a cloud-config must be a mapping",
        ),
    ] {
        let (done, out, _) = rendered(folder.path(), input, &args);
        let error = done.unwrap_err();
        assert!(error.contains(expected) && out.is_empty(), "{error}");
    }
}
