//! No file that is broken hurts more than the collectors that read it.

use std::fs;

use crate::world::*;

#[test]
fn no_broken_file_hurts_more_than_its_collectors() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("kubevirt"), dir.path());
    fs::remove_file(dir.path().join("expected.prom")).unwrap();
    let mut all = Vec::new();
    files(dir.path(), &mut all);
    assert!(all.len() > 40);
    let mut registry = registry(dir.path());
    for path in all {
        let whole = fs::read(&path).unwrap();
        let huge = whole.repeat((5 << 20) / whole.len().max(1) + 1);
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
            // Files that two collectors read.
            let shared = ["proc/stat", "proc/net/stat/nf_conntrack"];
            let allowed = if shared.iter().any(|file| path.ends_with(file)) {
                2
            } else {
                1
            };
            assert!(failed.len() <= allowed, "{}: {failed:?}", path.display());
        }
        fs::remove_file(&path).unwrap();
        scrape(&mut registry);
        fs::write(&path, &whole).unwrap();
    }
    let mut fresh = self::registry(dir.path());
    assert!(successes(&scrape(&mut fresh)).values().all(|success| *success));
}
