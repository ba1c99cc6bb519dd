//! The cost of a scrape as a number of system calls, which does not depend on the machine's load:
//! on generated guests, alone and beside node_exporter, and how it grows.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, os::unix::fs::PermissionsExt as _};

use virtfleet_tests::{
    measure::{
        ratchet,
        replay::{Trace, capture},
    },
    parity::programs::{SOON, Serve},
    parts, ports,
    roots::{self, Shape},
    scrape::Client,
    skip,
};

const TIER: u8 = 3;

/// Which program is traced.
#[derive(Debug, Clone, Copy)]
enum Program {
    Agent,
    NodeExporter,
}

/// One scrape of a guest of that shape, after others: what can be kept open is open.
fn scrape(program: Program, shape: Shape) -> Trace {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let roots = folder.path().join("roots");
    roots::write(&roots, shape).unwrap();
    let serve = Serve::defaults(Some(&roots)).unwrap();
    let address = ports::free().unwrap();
    let process = match program {
        Program::Agent => serve.agent(folder.path(), address, None),
        Program::NodeExporter => serve.node_exporter(folder.path(), address, None),
    };
    let mut process = process.unwrap();
    process.wait_for_port(address, SOON).unwrap();
    let mut client = Client::plain(address, SOON).unwrap();
    let mut page = || client.get("/metrics")?.ok().map(drop);
    (0..5).try_for_each(|_| page()).unwrap();
    capture(process.id(), page).unwrap()
}

fn can_trace(test: &str) -> bool {
    skip::need(TIER, test, skip::program("strace")).unwrap().is_some()
}

/// Most system calls of the agent for the small guest. Half of them read attributes of NICs, which
/// a live kernel answers in one netlink query.
const SMALL_CALLS: u64 = 420;
/// Most additional system calls for each additional part of a guest.
const CALLS_PER_PART: [(&str, usize, Shape); 3] = [
    (
        "CPU",
        30,
        Shape {
            cpus: 10,
            ..Shape::SMALL
        },
    ),
    (
        "disk",
        4,
        Shape {
            disks: 10,
            ..Shape::SMALL
        },
    ),
    (
        "NIC",
        80,
        Shape {
            nics: 10,
            ..Shape::SMALL
        },
    ),
];
/// Parts that a shape of [`CALLS_PER_PART`] has more than the small guest.
const MORE_PARTS: usize = 8;

#[test]
fn tier3_a_scrape_needs_few_system_calls_and_writes_nothing() {
    let test = "tier3_a_scrape_needs_few_system_calls_and_writes_nothing";
    if !can_trace(test) || skip::need(TIER, test, parts::node_exporter()).unwrap().is_none() {
        return;
    }
    let [ours, theirs] = [Program::Agent, Program::NodeExporter].map(|program| scrape(program, Shape::SMALL));
    assert_eq!(ours.writes, [""; 0], "a scrape writes to a file");
    let mut failures = Vec::new();
    let mut check = |what: String, good: bool| {
        println!("{what}");
        failures.extend((!good).then_some(what));
    };
    check(
        format!(
            "small guest: {} system calls; node_exporter {}",
            ours.count, theirs.count
        ),
        ours.count * 3 <= theirs.count * 2,
    );
    for (part, most, shape) in CALLS_PER_PART {
        let more =
            |program, small: &Trace| scrape(program, shape).count.saturating_sub(small.count) / MORE_PARTS;
        let (more, more_theirs) = (more(Program::Agent, &ours), more(Program::NodeExporter, &theirs));
        check(
            format!("each {part}: {more} more, at most {most}; node_exporter {more_theirs}"),
            more <= most && more <= more_theirs,
        );
    }
    let calls = ratchet(
        "system calls of a scrape",
        ours.count as u64,
        "SMALL_CALLS",
        SMALL_CALLS,
    );
    failures.extend(calls.err().map(|error| error.to_string()));
    assert!(failures.is_empty(), "{failures:#?}");
}
