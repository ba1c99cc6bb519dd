//! Simulation of the label writer: the real writer, election and watches of Nodes, with a simulated
//! infra cluster, simulated API servers and tokio's paused clock. Everything random comes from one
//! seed, so that a failing seed replays exactly.
//!
//! ```text
//! schedule (seed) ─▶ truth ── facts, late ──▶ Fleet ─▶ label writer ─ kube's client ─▶ SimConnection
//!                      │                        ▲                                        │ faults
//!                      │                        └──── list and watch of Nodes ◀──────────┤
//!                      └─ oracle: each patch, each request, the end state ◀── SimApiServer
//! ```
//! `VIRTFLEET_LABEL_SEEDS=FROM..TO` selects the seeds; a single one prints its trace.

mod api_server;
mod collector;
mod faults;
mod lease;
mod oracle;
mod policies;
mod schedule;
mod service;
mod sieve;
mod truth;
mod world;

use std::{fmt::Write as _, ops::Range};

use self::schedule::Simulation;

/// Seeds of a normal run.
const SEEDS: Range<u64> = 0..200;
/// Seeds that are run twice to compare the traces.
const REPEATED: u64 = 10;
/// Seeds between two lines of progress.
const PROGRESS: u64 = 500;

/// The trace of a run, and what was wrong.
struct SimResult {
    trace: Vec<String>,
    wrong: Vec<String>,
}

/// Runs `simulation` on a runtime of its own with a paused clock. The generator of this thread,
/// from which pauses get their jitter, starts with the seed, too.
fn simulate<F: Future>(seed: u64, simulation: impl FnOnce() -> F) -> F::Output {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async move { simulation().await })
}

fn run_seed(seed: u64) -> SimResult {
    simulate(seed, || async move {
        let mut simulation = Simulation::new(seed);
        simulation.run().await;
        let world = &mut *simulation.world.lock();
        SimResult {
            trace: std::mem::take(&mut world.trace),
            wrong: std::mem::take(&mut world.wrong),
        }
    })
}

/// The failure of a seed, with its trace and the command that replays it.
fn report(seed: u64, result: &SimResult) -> String {
    let mut text = String::new();
    for line in &result.trace {
        writeln!(text, "{line}").unwrap();
    }
    format!(
        "{text}seed {seed}: {}\nreplay: VIRTFLEET_LABEL_SEEDS={seed}..{} cargo test -p virtfleet-collector --lib simulation::seeds",
        result.wrong.join("\n"),
        seed + 1
    )
}

/// The seeds to run: from the environment, or [`SEEDS`].
fn selected() -> Range<u64> {
    let Ok(text) = std::env::var("VIRTFLEET_LABEL_SEEDS") else {
        return SEEDS;
    };
    let range = text.split_once("..").and_then(|(from, to)| {
        let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        (from < to).then_some(from..to)
    });
    range.unwrap_or_else(|| panic!("VIRTFLEET_LABEL_SEEDS={text:?} is not a range such as 0..1000"))
}

#[test]
fn seeds_end_with_the_labels_that_the_truth_demands() {
    let seeds = selected();
    for seed in seeds.clone() {
        let result = run_seed(seed);
        assert!(result.wrong.is_empty(), "{}", report(seed, &result));
        if seeds.end - seeds.start == 1 {
            println!("{}", result.trace.join("\n"));
        }
        let done = seed - seeds.start + 1;
        if done.is_multiple_of(PROGRESS) {
            println!("{done} of {} seeds", seeds.end - seeds.start);
        }
    }
}

#[test]
fn a_seed_that_runs_twice_has_the_same_trace() {
    let seeds = selected();
    for seed in seeds.start..seeds.end.min(seeds.start + REPEATED) {
        let (first, second) = (run_seed(seed).trace, run_seed(seed).trace);
        let differ = first.iter().zip(&second).position(|(one, other)| one != other);
        if let Some(at) = differ {
            panic!("seed {seed}, line {at}:\n{}\n{}", first[at], second[at]);
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
        assert!(first.len() > 30, "seed {seed}: {first:#?}");
    }
}
