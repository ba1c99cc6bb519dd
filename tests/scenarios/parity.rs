//! The agent's page is node_exporter's: families, types, labels and values, on this machine and on roots of other guests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use virtfleet_tests::{
    parity::{self, Verdict},
    parts,
    roots::{self, Shape},
    skip,
};

const TIER: u8 = 3;
const ROUNDS: usize = 8;

/// Whether node_exporter is there.
fn need(test: &str) -> bool {
    skip::need(TIER, test, parts::node_exporter()).unwrap().is_some()
}

/// With everything that settings can add.
fn check(place: &str, roots: Option<&Path>) -> Verdict {
    played(place, roots, true)
}

fn played(place: &str, roots: Option<&Path>, wide: bool) -> Verdict {
    let verdict = parity::run(roots, wide, ROUNDS).unwrap();
    println!("{place}: {verdict}");
    assert!(verdict.compared.0 > 50, "{place}: too few families: {verdict}");
    verdict
}

fn assert_equal(place: &str, verdict: &Verdict) {
    assert!(verdict.unexplained.is_empty(), "{place}: {verdict}");
}

#[test]
fn tier3_parity_on_this_machine() {
    if need("tier3_parity_on_this_machine") {
        assert_equal("this machine", &check("this machine", None));
    }
}

#[test]
fn tier3_parity_with_default_settings() {
    if need("tier3_parity_with_default_settings") {
        assert_equal("this machine", &played("this machine", None, false));
    }
}

#[test]
fn tier3_parity_on_generated_roots() {
    if !need("tier3_parity_on_generated_roots") {
        return;
    }
    for shape in [
        Shape::SMALL,
        Shape {
            cpus: 64,
            disks: 30,
            nics: 12,
        },
    ] {
        let folder = tempfile::tempdir().unwrap();
        roots::write(folder.path(), shape).unwrap();
        let place = format!("{shape:?}");
        assert_equal(&place, &check(&place, Some(folder.path())));
    }
}

/// What the fixtures were written for: what a KVM guest has, and hardware that this machine lacks.
#[test]
fn tier3_parity_on_fixture_roots() {
    if !need("tier3_parity_on_fixture_roots") {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/roots");
    let mut verdicts = Vec::new();
    for root in fs::read_dir(folder).unwrap() {
        let root = root.unwrap().path();
        let name = root.file_name().unwrap().to_string_lossy().into_owned();
        // Where files are broken, or hardly any are there, the two may differ: node_exporter gives up sooner.
        if name != "broken" && name != "minimal" {
            verdicts.push((name.clone(), check(&name, Some(&root))));
        }
    }
    for (name, verdict) in &verdicts {
        assert_equal(name, verdict);
        assert!(verdict.idle.is_empty(), "{name}: {verdict}");
    }
}
