//! The systemd-sysext image: what is in it, that it is the same each time, and the channel beside
//! it. `guest_lifecycle` has guests with it.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use virtfleet_tests::{process::Launch, skip};

use crate::packaging_deb::tree;

const MINUTE: Duration = Duration::from_mins(1);

/// Builds the image around a stand-in for the program; gives its path.
fn built(work: &Path, name: &str) -> PathBuf {
    let program = work.join("stand-in");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let out = work.join(name);
    Launch::new(tree().join("packaging/sysext/build.sh"))
        .arg(&out)
        .arg(&program)
        .arg("https://updates.example/x")
        .text(MINUTE)
        .unwrap();
    let mut paths = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    paths
        .find(|path| path.extension().is_some_and(|extension| extension == "raw"))
        .unwrap()
}

/// All regular files below a folder, relative to it.
fn files(folder: &Path) -> Vec<String> {
    let listed = Launch::new("find")
        .arg(folder)
        .args(["-type", "f", "-printf", "%P\\n"])
        .text(MINUTE)
        .unwrap();
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn tier3_the_extension_image_has_the_agent_and_its_units_below_usr() {
    let test = "tier3_the_extension_image_has_the_agent_and_its_units_below_usr";
    let tools = skip::program("mksquashfs").and_then(|_| skip::program("unsquashfs"));
    let Some(unsquashfs) = skip::need(3, test, tools).unwrap() else {
        return;
    };
    let work = TempDir::new().unwrap();
    let image = built(work.path(), "first");
    let again = built(work.path(), "second");
    assert!(
        fs::read(&image).unwrap() == fs::read(&again).unwrap(),
        "they differ"
    );

    let root = work.path().join("root");
    Launch::new(unsquashfs)
        .args(["-no-progress", "-no-xattrs", "-d"])
        .arg(&root)
        .arg(&image)
        .text(MINUTE)
        .unwrap();
    let found = files(&root);
    let outside: Vec<&String> = found.iter().filter(|path| !path.starts_with("usr/")).collect();
    assert!(outside.is_empty(), "systemd-sysext ignores it: {outside:?}");
    let program = fs::metadata(root.join("usr/bin/virtfleet-agent")).unwrap();
    assert_eq!(program.permissions().mode() & 0o7777, 0o755);
    let units = tree().join("packaging/systemd");
    for unit in files(&units) {
        let unit = unit.strip_prefix("drop-ins/").unwrap_or(&unit);
        let path = format!("usr/lib/systemd/system/{unit}");
        assert!(found.contains(&path), "{path} in {found:?}");
    }
    let release = root.join("usr/lib/extension-release.d/extension-release.virtfleet-agent");
    let release = fs::read_to_string(release).unwrap();
    assert!(release.starts_with("ID=_any\nARCHITECTURE="), "{release}");

    // Each unit that a package enables is started.
    let read = |path: &str| fs::read_to_string(tree().join(path)).unwrap();
    let start = read("packaging/sysext/virtfleet-extension.service");
    for line in read("packaging/rpm/50-virtfleet.preset").lines() {
        // The agent's unit starts its socket.
        if let Some(unit) = line.strip_prefix("enable ")
            && unit != "virtfleet-agent.socket"
        {
            assert!(start.contains(unit), "{unit} in {start}");
        }
    }

    let folder = image.parent().unwrap();
    Launch::new("sh")
        .args(["-c", "cd \"$1\" && sha256sum --check --strict SHA256SUMS", "sh"])
        .arg(folder)
        .text(MINUTE)
        .unwrap();
    let channel = fs::read_to_string(folder.join("virtfleet-agent.conf")).unwrap();
    assert!(
        channel.contains("\nPath=https://updates.example/x\n"),
        "{channel}"
    );
    assert!(
        !channel.contains("@ARCH@") && !channel.contains("@URL@"),
        "{channel}"
    );
}
