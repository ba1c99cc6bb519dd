//! The agent's page is node_exporter's: families, types, labels and values, on this machine and on
//! roots of other guests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use virtfleet_agent::cli::{command, translate};
use virtfleet_tests::{
    loops::{self, Loop},
    parity::{
        self, Extent, Verdict,
        allowed::{ALLOWED, MACHINE},
        programs::{Programs, Serve},
    },
    parts,
    process::{AtEnd, Launch},
    roots::{self, Shape},
    scratch, skip,
};

const TIER: u8 = 3;
/// Rounds of scrapes; each round scrapes both programs.
const SCRAPE_ROUNDS: usize = 8;

/// Whether node_exporter is there.
fn need(test: &str) -> bool {
    skip::need(TIER, test, parts::node_exporter()).unwrap().is_some()
}

/// With everything that settings can add.
fn check(place: &str, roots: Option<&Path>) -> Verdict {
    played(place, roots, Extent::Wide)
}

fn played(place: &str, roots: Option<&Path>, extent: Extent) -> Verdict {
    let verdict = parity::run(roots, extent, SCRAPE_ROUNDS).unwrap();
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
        assert_equal("this machine", &played("this machine", None, Extent::Plain));
    }
}

#[test]
fn tier3_parity_with_other_names_and_labels() {
    if !need("tier3_parity_with_other_names_and_labels") {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/roots");
    for (place, roots) in [
        ("this machine", None),
        ("kubevirt", Some(folder.join("kubevirt"))),
        ("hardware", Some(folder.join("hardware"))),
    ] {
        assert_equal(place, &played(place, roots.as_deref(), Extent::Renamed));
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
        // Where files are broken, or hardly any are there, the two may differ: node_exporter gives
        // up sooner.
        if name != "broken" && name != "minimal" {
            verdicts.push((name.clone(), check(&name, Some(&root))));
        }
    }
    for (name, verdict) in &verdicts {
        assert_equal(name, verdict);
        assert!(verdict.idle.is_empty(), "{name}: {verdict}");
    }
}

/// A filesystem on two devices: what is asked by ioctl, by a program without rights.
#[test]
fn tier3_parity_on_btrfs() {
    const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);
    let test = "tier3_parity_on_btrfs";
    let needed = loops::needs().and_then(|()| skip::program("mkfs.btrfs"));
    if !need(test) || skip::need(TIER, test, needed).unwrap().is_none() {
        return;
    }
    let folder = scratch::marked().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let disks = ["one", "two"].map(|name| Loop::blank(folder.path(), name, 256 << 20).unwrap());
    let nodes = disks.each_ref().map(Loop::node);
    Launch::new("mkfs.btrfs")
        .args([
            "--quiet",
            "--data",
            "single",
            "--metadata",
            "raid1",
            "--label",
            "parity",
        ])
        .args(nodes)
        .text(COMMAND_TIMEOUT)
        .unwrap();
    let place = folder.path().join("mounted");
    fs::create_dir(&place).unwrap();
    let _end = AtEnd::new("umount --lazy \"$1\"", [&place]).unwrap();
    let devices = format!("device={},device={}", nodes[0].display(), nodes[1].display());
    Launch::new("mount")
        .args(["-t", "btrfs", "-o", &devices])
        .args([nodes[0], place.as_path()])
        .text(COMMAND_TIMEOUT)
        .unwrap();
    fs::write(place.join("file"), vec![7; 1 << 20]).unwrap();
    nix::unistd::sync();
    let serve = Serve {
        collectors: vec!["btrfs"],
        roots: None,
        extent: Extent::Plain,
        nobody: true,
    };
    let rounds = Programs::start(&serve).unwrap().rounds(SCRAPE_ROUNDS).unwrap();
    let families = &rounds[0].ours.0;
    for (family, count) in [
        ("node_btrfs_device_unused_bytes", 2),
        ("node_btrfs_device_errors_total", 10),
        ("node_btrfs_device_size_bytes", 2),
    ] {
        let series = &families[family].series;
        let of_ours = series.keys().filter(|key| {
            let loops = key.labels.iter().filter(|(name, _)| name == "device");
            loops
                .into_iter()
                .any(|(_, text)| disks.iter().any(|disk| disk.name() == *text))
        });
        assert_eq!(of_ours.count(), count, "{series:?}");
    }
    let verdict = parity::judge(&rounds, ALLOWED, MACHINE);
    println!("btrfs: {verdict}");
    assert_equal("btrfs", &verdict);
}

/// So that the agent may stand in for node_exporter under its unit.
#[test]
fn tier3_every_flag_of_node_exporter_is_taken_or_answered() {
    let test = "tier3_every_flag_of_node_exporter_is_taken_or_answered";
    let Some(program) = skip::need(TIER, test, parts::node_exporter()).unwrap() else {
        return;
    };
    let (_, help) = Launch::new(program)
        .arg("--help")
        .said(Duration::from_secs(30))
        .unwrap();
    // `--[no-]collector.cpu`, `--web.listen-address=:9100 ...`, `-h, --help`
    let flags = help.lines().filter_map(|line| {
        let (_, flag) = line
            .split_once("--")
            .filter(|(before, _)| before.trim().trim_end_matches(',').len() <= 2)?;
        let flag = flag.split_whitespace().next()?.replace("[no-]", "");
        Some(
            flag.split_once('=')
                .map_or((flag.clone(), false), |(name, _)| (name.to_owned(), true)),
        )
    });
    let flags: Vec<_> = flags
        .filter(|(name, _)| name.ends_with(|last: char| last.is_ascii_alphanumeric()))
        .filter(|(name, _)| !name.starts_with("help") && name != "version")
        .collect();
    assert!(flags.len() > 140, "{help}");
    let (mut left_out, mut refused) = (Vec::new(), Vec::new());
    for (name, has_value) in &flags {
        let value = match name.as_str() {
            "log.level" => "info",
            "log.format" => "logfmt",
            _ => "1",
        };
        let flag = if *has_value {
            format!("--{name}={value}")
        } else {
            format!("--{name}")
        };
        let (arguments, lines) = translate(["node_exporter".into(), flag.clone().into()]);
        if let Err(error) = command().try_get_matches_from(arguments) {
            refused.push(format!("{flag}: {}", error.kind()));
        }
        left_out.extend(lines);
    }
    println!(
        "{} flags, {} of them left out:\n{}",
        flags.len(),
        left_out.len(),
        left_out.join("\n")
    );
    assert_eq!(refused, [""; 0], "neither taken nor answered");
    assert!(left_out.len() < flags.len() * 2 / 5, "{left_out:#?}");
}
