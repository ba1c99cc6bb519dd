//! The krew manifest of `kubectl virtfleet`: version, checksum and files are those of the archive.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use virtfleet_tests::{install::objects, process::Launch};

use crate::expressions::root;

/// Maximum time of one command.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn krew_manifest_names_the_archive_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    fs::create_dir(out.join("bin")).unwrap();
    let program = out.join("bin/virtfleetctl");
    fs::write(&program, "#!/bin/sh\necho plugin\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let render = || {
        let launch = Launch::new(root().join("packaging/krew/render.sh")).arg(out);
        launch
            .args(["https://releases.example.org/", "amd64"])
            .text(STEP_TIMEOUT)
            .unwrap();
        fs::read_to_string(out.join("virtfleet.yaml")).unwrap()
    };
    let text = render();
    assert_eq!(text, render(), "the same program gives the same archive");
    assert!(!text.contains('@'), "{text}");
    let manifest = &objects(&text).unwrap()[0];
    assert_eq!(
        manifest["spec"]["version"],
        format!("v{}", env!("CARGO_PKG_VERSION"))
    );
    let platform = &manifest["spec"]["platforms"][0];
    let uri = platform["uri"].as_str().unwrap();
    let archive = uri.strip_prefix("https://releases.example.org/").unwrap();
    let archive = out.join(archive);
    let sum = Launch::new("sha256sum").arg(&archive).text(STEP_TIMEOUT).unwrap();
    assert_eq!(sum.split(' ').next(), platform["sha256"].as_str());
    let unpacked = out.join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let tar = Launch::new("tar")
        .arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(&unpacked);
    tar.text(STEP_TIMEOUT).unwrap();
    for file in platform["files"].as_array().unwrap() {
        let name = file["from"].as_str().unwrap();
        assert!(unpacked.join(name).is_file(), "{name}");
    }
    let plugin = unpacked.join(platform["bin"].as_str().unwrap());
    let said = Launch::new(plugin).text(STEP_TIMEOUT).unwrap();
    assert_eq!(said, "plugin\n");
}

/// The page tells users of krew to run it: it needs no tools for the agent's packages.
#[test]
fn krew_needs_only_virtfleetctl() {
    let make = Launch::new("make").arg("-C").arg(root());
    let make = make
        .args(["-n", "virtfleetctl", "OUT=/elsewhere"])
        .env("MAKEFLAGS", "");
    let said = make.text(STEP_TIMEOUT).unwrap();
    assert!(
        said.contains("-t '/elsewhere/bin' target/collector/virtfleetctl\n"),
        "{said}"
    );
    for other in ["packaging/", "dist.sh", "crt-static"] {
        assert!(!said.contains(other), "{other}: {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let render = Launch::new(root().join("packaging/krew/render.sh")).arg(folder.path());
    let (code, said) = render.arg("https://x").said(STEP_TIMEOUT).unwrap();
    assert!(
        code == 1 && said.contains("run make virtfleetctl"),
        "{code}: {said}"
    );
}
