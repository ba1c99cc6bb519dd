//! The archive of the agent's files: that it is the same each time, and has what the packages have.

use std::{fs, time::Duration};

use tempfile::TempDir;
use virtfleet_tests::{process::Launch, skip};

use crate::packaging_deb::{built, tree};

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn tier3_the_archive_is_the_same_each_time_and_has_all_units() {
    let test = "tier3_the_archive_is_the_same_each_time_and_has_all_units";
    if skip::need(3, test, skip::program("zstd")).unwrap().is_none() {
        return;
    }
    let work = TempDir::new().unwrap();
    let first = built(work.path(), "tar/build.sh", "first").unwrap();
    let second = built(work.path(), "tar/build.sh", "second").unwrap();
    assert!(
        fs::read(&first).unwrap() == fs::read(&second).unwrap(),
        "they differ"
    );
    let listed = Launch::new("tar")
        .args(["--zstd", "--numeric-owner", "-tvf"])
        .arg(&first)
        .text(MINUTE)
        .unwrap();
    let has = |mode: &str, path: &str| {
        let mut lines = listed.lines();
        lines.any(|line| line.starts_with(&format!("{mode} 0/0 ")) && line.ends_with(&format!(" {path}")))
    };
    assert!(has("-rwxr-xr-x", "usr/bin/virtfleet-agent"), "{listed}");
    assert!(has("drwxr-xr-x", "etc/virtfleet/agent.d/"), "{listed}");
    assert!(!has("drwxr-xr-x", "usr/"), "a folder of the image: {listed}");
    for unit in fs::read_dir(tree().join("packaging/systemd")).unwrap() {
        let unit = unit.unwrap().file_name().into_string().unwrap();
        let path = format!("usr/lib/systemd/system/{unit}");
        assert!(unit == "drop-ins" || has("-rw-r--r--", &path), "{path}: {listed}");
    }
}
