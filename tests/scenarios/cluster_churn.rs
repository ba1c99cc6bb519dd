//! Tier 3: two collectors, one of which is killed repeatedly while VMs move, hosts are
//! relabelled and others edit the same Nodes. What the API servers were asked is the proof.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

mod world;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use jiff::Timestamp;
use nix::sys::signal::Signal;
use virtfleet_tests::{
    cluster::{
        Mark,
        live::{self, Collector, WAIT_TIMEOUT},
        scene::{SHORTEST_LEASE, Scene, patched},
    },
    parts, skip, wait,
};
use world::{Label, Span, WANTED, World, churn, meddle};

/// Kills, unless `VIRTFLEET_CHURN_KILLS` says how many, as `make churn-soak` does. Each takes 4
/// seconds.
const KILLS: usize = 12;
const SEED: u64 = 20_260_101;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// The one that leads.
fn leader(pair: &[Collector]) -> Result<usize> {
    let asked = Instant::now();
    // One that has just begun does not answer yet.
    let said: Vec<_> = pair.iter().map(Collector::leads).collect();
    let all: Vec<_> = (0..pair.len())
        .filter(|one| matches!(said[*one], Ok(true)))
        .collect();
    // Between the end of one's term and the next one's begin lies a second, so what was asked
    // within half of it is one moment.
    let at_once = asked.elapsed() < Duration::from_millis(500);
    assert!(all.len() < 2 || !at_once, "two lead at once");
    all.first().copied().with_context(|| {
        let why = said.iter().zip(pair).map(|(said, one)| {
            let log = one.process.log();
            let last: Vec<_> = log.lines().rev().take(5).collect();
            format!("{said:?}, its last lines, newest first: {last:#?}")
        });
        format!("no collector leads: {}", why.collect::<Vec<_>>().join("; "))
    })
}

/// Kills the leading collector repeatedly; returns for each kill the time without a leader.
fn kill_leaders(scene: &Scene, kills: usize, seed: u64) -> Result<(Vec<Collector>, Vec<Duration>)> {
    let mut rng = Rng::with_seed(seed);
    let mut pair = vec![
        scene.collector("c0", live::NO_CONFIRMATION)?,
        scene.collector("c1", live::NO_CONFIRMATION)?,
    ];
    let mut gaps = Vec::new();
    let mut killed_at = None;
    for round in 0..=kills {
        let found = wait::eventually(WAIT_TIMEOUT, "one of them leads", || leader(&pair))?;
        gaps.extend(killed_at.map(|at: Instant| at.elapsed()));
        if round == kills {
            break;
        }
        // On a busy machine the newest may not be ready yet. Without a standby, no collector takes
        // over within the lease.
        for one in &pair {
            one.until_ready()?;
        }
        thread::park_timeout(Duration::from_millis(rng.u64(0..700)));
        let mut killed = pair.remove(found);
        killed.process.signal(Signal::SIGKILL)?;
        killed.process.wait(WAIT_TIMEOUT)?;
        killed_at = Some(Instant::now());
        pair.push(scene.collector(&format!("c{}", round + 2), live::NO_CONFIRMATION)?);
    }
    Ok((pair, gaps))
}

fn converged(scene: &Scene, world: &World) -> Result<()> {
    wait::eventually(WAIT_TIMEOUT, "all labels are true", || {
        let mut nodes = BTreeMap::new();
        for (index, tenant) in scene.tenants.iter().enumerate() {
            let list = tenant.server.admin().get("/api/v1/nodes")?.ok()?;
            for node in list["items"].as_array().into_iter().flatten() {
                let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                nodes.insert((index, name), node["metadata"]["labels"].clone());
            }
        }
        for ((cluster, name, key), spans) in &world.truth {
            let now = &nodes[&(*cluster, name.clone())][key];
            let truth = &spans.last().unwrap().value;
            ensure!(now == truth, "{key} of {name} in {cluster} is {now}, not {truth}");
        }
        Ok(())
    })
}

/// A value that a collector asked for, and that was not refused.
#[derive(Debug)]
struct Write {
    at: Timestamp,
    value: String,
    /// The API server answered. Otherwise the sender was killed meanwhile, and it is unknown
    /// whether the write took effect.
    done: bool,
}

/// What the collectors wrote, in order, of each label of each Node.
type Writes = BTreeMap<Label, Vec<Write>>;

/// Reads the audit log of every user cluster. Fails when a collector asked for anything but patches
/// of wanted labels.
fn writes(scene: &Scene, marks: &[Mark]) -> Result<(Writes, BTreeMap<u16, usize>)> {
    let (mut writes, mut codes) = (Writes::new(), BTreeMap::new());
    for (index, tenant) in scene.tenants.iter().enumerate() {
        let mut entries = tenant.writes(marks[index])?;
        entries.sort_by_key(|entry| entry.received);
        for entry in entries {
            *codes.entry(entry.code).or_default() += 1;
            for (key, value) in patched(&entry)? {
                ensure!(
                    WANTED.contains(&key.as_str()),
                    "{key} was never wanted: {entry:?}"
                );
                let value = value.as_str();
                ensure!(value.is_some(), "nothing is ever to be removed: {entry:?}");
                if !(400..500).contains(&entry.code) {
                    let write = Write {
                        at: entry.received,
                        value: value.unwrap().to_owned(),
                        done: entry.code == 200,
                    };
                    let label = (index, entry.name.clone(), key.clone());
                    writes.entry(label).or_default().push(write);
                }
            }
        }
    }
    Ok((writes, codes))
}

/// Whether a value was true at some time between two moments.
fn was_true(spans: &[Span], value: &str, since: Option<Timestamp>, until: Timestamp) -> bool {
    spans.iter().any(|span| {
        let ended = span.until.zip(since).is_some_and(|(end, since)| end < since);
        span.value == value && span.from <= until && !ended
    })
}

/// Fails when a label was given a value that it had, or one that was not true since it was given
/// the one before.
fn no_flapping(world: &World, writes: &Writes) -> Result<()> {
    for (label, all) in writes {
        let spans = &world.truth[label];
        for (index, write) in all.iter().enumerate() {
            // The last one that was done for sure, and those after it that may have been.
            let known = all[..index].iter().rposition(|one| one.done);
            let before = &all[known.unwrap_or(0)..index];
            let since = known.map(|known| all[known].at);
            let same = !before.is_empty() && before.iter().all(|one| one.value == write.value);
            let what = || format!("{label:?}: {write:?} after {before:#?}, while true was {spans:#?}");
            ensure!(
                !same || known.is_none(),
                "the same value twice in a row: {}",
                what()
            );
            ensure!(
                was_true(spans, &write.value, since, write.at),
                "it was not true since the write before: {}",
                what()
            );
        }
    }
    Ok(())
}

fn foreign(scene: &Scene, last: &BTreeMap<Label, Option<String>>) -> Result<()> {
    for ((cluster, name, key), value) in last {
        let now = scene.tenants[*cluster].label(name, key)?;
        ensure!(now == *value, "{key} of {name} is {now:?}, not {value:?}");
    }
    Ok(())
}

#[test]
fn the_leader_is_killed_while_everything_changes_tier3() {
    let test = "the_leader_is_killed_while_everything_changes_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let kills = usize::try_from(from_environment("VIRTFLEET_CHURN_KILLS", KILLS as u64)).unwrap();
    let seed = from_environment("VIRTFLEET_CHURN_SEED", SEED);
    println!("{kills} kills, seed {seed}");
    let mut scene = Scene::new(&["prod", "dev"]).unwrap();
    scene.lease = SHORTEST_LEASE;
    let world = Mutex::new(World::new(&scene).unwrap());
    let marks: Vec<_> = scene
        .tenants
        .iter()
        .map(|one| one.server.audit_mark().unwrap())
        .collect();
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let (pair, gaps, last, edits) = thread::scope(|scope| {
        let churning = scope.spawn(|| churn(&scene, &world, seed, &stop));
        let meddling = scope.spawn(|| meddle(&scene, seed + 1, &stop));
        // Also when it fails.
        let killed = scope.spawn(|| kill_leaders(&scene, kills, seed + 2)).join();
        stop.store(true, Ordering::Relaxed);
        churning.join().unwrap().unwrap();
        let (last, edits) = meddling.join().unwrap().unwrap();
        let (pair, gaps) = killed.unwrap().unwrap();
        (pair, gaps, last, edits)
    });
    let world = world.into_inner().unwrap();
    let (settling, churned) = (Instant::now(), begun.elapsed());
    converged(&scene, &world).unwrap();
    let settled = settling.elapsed();
    // Whatever is still to be written is written before the label of a VM that comes now.
    let leads = wait::eventually(WAIT_TIMEOUT, "one of them leads", || leader(&pair)).unwrap();
    for tenant in &scene.tenants {
        scene.until_idle(&pair[leads], tenant, "host-0", "rack").unwrap();
    }
    converged(&scene, &world).unwrap();
    foreign(&scene, &last).unwrap();
    assert_eq!(pair.len(), 2);

    let (writes, codes) = writes(&scene, &marks).unwrap();
    no_flapping(&world, &writes).unwrap();
    let longest = gaps.iter().max().unwrap();
    let mean = gaps.iter().sum::<Duration>() / u32::try_from(gaps.len()).unwrap();
    println!(
        "{} kills in {churned:.0?}: no leader for {mean:.1?} on average, {longest:.1?} at most\n\
         {} moves, {} failed moves, {} relabelled hosts, {edits} edits by others\n\
         answers to the collectors' patches: {codes:?}; {} values of labels written\n\
         all labels true {settled:.1?} after the last change",
        gaps.len(),
        world.moves,
        world.failed_moves,
        world.relabels,
        writes.values().map(Vec::len).sum::<usize>(),
    );
    assert_eq!(gaps.len(), kills);
    assert!(
        *longest < Duration::from_secs(15),
        "a standby takes over within the lease"
    );
}
