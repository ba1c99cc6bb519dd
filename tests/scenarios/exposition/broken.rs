//! No file that is broken hurts more than the collectors that read it.

use std::{fs, path::Path};

use virtfleet_tests::scratch;

use crate::exposition::world::*;

/// Files that more than one collector reads, and how many do.
const READERS: [(&str, usize); 3] = [
    ("proc/stat", 2),
    ("proc/self/mountinfo", 2),
    ("proc/net/stat/nf_conntrack", 2),
];

#[test]
fn no_broken_file_of_procfs_hurts_more_than_its_collectors() {
    breaks("kubevirt", |path| path.starts_with("proc"));
}

#[test]
fn no_broken_file_of_sysfs_hurts_more_than_its_collectors() {
    breaks("kubevirt", |path| path.starts_with("sys"));
}

#[test]
fn no_broken_file_of_the_rest_hurts_more_than_its_collectors() {
    breaks("kubevirt", |path| {
        !path.starts_with("proc") && !path.starts_with("sys")
    });
}

#[test]
fn no_broken_file_of_hardware_hurts_more_than_its_collectors() {
    breaks("hardware", |_| true);
}

/// Breaks the files that `takes` takes by their paths below the root, one after the other and each
/// in several ways.
fn breaks(name: &str, takes: fn(&Path) -> bool) {
    let dir = scratch::folder().unwrap();
    copy(&fixture(name), dir.path());
    fs::remove_file(dir.path().join("expected.prom")).unwrap();
    let mut all = Vec::new();
    files(dir.path(), &mut all);
    all.retain(|path| takes(path.strip_prefix(dir.path()).unwrap()));
    assert!(all.len() > 10);
    let mut untouched = registry_of_what_works(dir.path());
    let mut registry = registry_of_what_works(dir.path());
    for path in all {
        let whole = fs::read(&path).unwrap();
        // More than the reader of such a file takes: sysfs has a page at the most.
        let too_much = if path.starts_with(dir.path().join("sys")) {
            64 << 10
        } else {
            5 << 20
        };
        let huge = whole.repeat(too_much / whole.len().max(1) + 1);
        let binary: Vec<_> = (0..=255).collect();
        let repeated = whole.repeat(3);
        for broken in [
            &whole[..whole.len() / 2],
            &whole[..whole.len().saturating_sub(3)],
            b"",
            &binary,
            &repeated,
            &huge,
        ] {
            fs::write(&path, broken).unwrap();
            let failed: Vec<_> = successes(&scrape(&mut registry))
                .into_iter()
                .filter(|(_, success)| !success)
                .map(|(name, _)| name)
                .collect();
            let allowed = READERS
                .iter()
                .find(|(file, _)| path.ends_with(file))
                .map_or(1, |(_, readers)| *readers);
            let why: Vec<_> = failed.iter().map(|name| registry.reason(name)).collect();
            assert!(failed.len() <= allowed, "{}: {failed:?}, {why:?}", path.display());
        }
        // Whole first: a collector that keeps it open goes on with what was removed, which a
        // kernel's file never is.
        fs::write(&path, &whole).unwrap();
        fs::remove_file(&path).unwrap();
        scrape(&mut registry);
        fs::write(&path, &whole).unwrap();
    }
    assert!(
        successes(&scrape(&mut untouched))
            .values()
            .all(|success| *success)
    );
}
