//! No file that is broken hurts more than the collectors that read it.

use std::{collections::BTreeMap, fs, path::Path};

use virtfleet_tests::scratch;

use crate::exposition::world::*;

/// Files that more than one collector reads, and how many do.
const READERS: [(&str, usize); 4] = [
    ("proc/stat", 2),
    ("proc/interrupts", 2),
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

/// Files in which a malformed line makes others untrustworthy, and why.
const WHOLE: [(&str, &str); 20] = [
    ("proc/interrupts", "the sum of a device's lines lacks one"),
    ("proc/softirqs", "the first line names the CPUs of the columns"),
    ("proc/zoneinfo", "the line may have been the heading of a zone"),
    ("proc/mdstat", "the line may have been one of an array"),
    ("proc/net/udp", "the series are sums over all sockets"),
    ("proc/net/snmp", "values belong to the names in the line above"),
    ("proc/net/netstat", "values belong to the names in the line above"),
    ("proc/net/ip_vs", "servers belong to the service above"),
    ("proc/net/ip_vs_stats", "the sums are in the third line"),
    ("proc/net/rpc/nfs", "a line that is missing counts as 0"),
    ("proc/net/rpc/nfsd", "a line that is missing counts as 0"),
    ("proc/net/stat/arp_cache", "lines have no number of their CPU"),
    ("proc/net/stat/nf_conntrack", "lines have no number of their CPU"),
    (
        "proc/self/mountinfo",
        "its mounts are those of mountstats by position",
    ),
    ("proc/self/mountstats", "counters belong to the mount above"),
    ("zfs/tank/io", "values belong to the names in the line above"),
    ("state/nic.json", "it is one document"),
    ("state/disks.json", "it is one document"),
    ("state/dns.json", "it is one document"),
    ("state/guest-health.json", "it is one document"),
];

/// Files of whose lines series of others are made up, and how.
const MADE_UP: [(&str, &str); 1] = [(
    "proc/1/mountinfo",
    "disks have the health of the last reconcile run, and filesystems are counted",
)];

/// A line more, which none of the files has.
const GARBAGE: &str = "garbage: x -y z";

#[test]
fn a_malformed_line_changes_and_hides_no_other() {
    damaged(|lines, place| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        lines.insert(place, GARBAGE.to_owned());
        Some(lines)
    });
}

#[test]
fn a_cut_line_changes_no_other() {
    damaged(|lines, place| {
        let line = lines.get(place)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let indent = &line[..line.len() - line.trim_start().len()];
        let half = format!("{indent}{}", words[..words.len() / 2].join(" "));
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        lines[place] = half;
        (words.len() > 1).then_some(lines)
    });
}

/// Damages each file at several places, and checks what other lines show. A line more hides no
/// series except in files of [`WHOLE`]; a line that is cut hides its own. No series has another
/// value, unless one of its labels is in the damaged line.
fn damaged(damage: fn(&[&str], usize) -> Option<Vec<String>>) {
    let mut wrong = BTreeMap::new();
    for name in ["kubevirt", "hardware"] {
        let dir = scratch::folder().unwrap();
        copy(&fixture(name), dir.path());
        fs::remove_file(dir.path().join("expected.prom")).unwrap();
        let mut registry = registry_of_what_works(dir.path());
        scrape(&mut registry);
        let clean = series(&scrape(&mut registry));
        let mut all = Vec::new();
        files(dir.path(), &mut all);
        for path in all {
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            let lines: Vec<&str> = text.lines().collect();
            let is_in = |files: &[(&str, &str)]| files.iter().any(|(file, _)| path.ends_with(file));
            if lines.len() < 3 || is_in(&MADE_UP) {
                continue;
            }
            let whole = is_in(&WHOLE);
            // At most some places in a long file.
            for place in (0..=lines.len()).step_by(lines.len() / 16 + 1) {
                let Some(damaged) = damage(&lines, place) else {
                    continue;
                };
                let more = damaged.len() > lines.len();
                fs::write(&path, damaged.join("\n") + "\n").unwrap();
                let found = series(&scrape(&mut registry));
                let own = lines.get(place).filter(|_| !more);
                let differ: Vec<_> = clean
                    .iter()
                    .filter(|(name, value)| match found.get(*name) {
                        None => more && !whole,
                        Some(now) => now != *value && !own.is_some_and(|line| is_about(line, name)),
                    })
                    .collect();
                let new = found.keys().find(|name| !clean.contains_key(*name));
                // Without the state of its queues, a NIC has one finding more.
                let new = new.filter(|_| more && !path.ends_with("state/nic.json"));
                if !differ.is_empty() || new.is_some() {
                    let which = format!("line {}: {differ:?}, new: {new:?}", place + 1);
                    wrong.entry(path.clone()).or_insert(which);
                }
            }
            fs::write(&path, &text).unwrap();
            scrape(&mut registry);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether a value of the series' labels is in the line.
fn is_about(line: &str, series: &str) -> bool {
    let mut values = series.split('"').skip(1).step_by(2);
    let words: Vec<&str> = line.split_whitespace().collect();
    values.any(|value| words.contains(&value))
}

/// The series of a page by name and labels, without those about the collectors.
fn series(page: &str) -> BTreeMap<String, String> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    // The last is a ratio of what came since the scrape before.
    let without = [
        "node_scrape_",
        "virtfleet_agent_",
        "virtfleet_guest_cpu_steal_ratio",
    ];
    let guest = samples.filter(|line| !without.iter().any(|start| line.starts_with(start)));
    guest
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
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
