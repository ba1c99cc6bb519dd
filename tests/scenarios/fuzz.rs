//! Tier 1: what `make fuzz` found, and what it begins with, played with the normal toolchain; and
//! each of these a little broken.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "all of it is test code, helpers too"
)]

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What the targets play of the agent.
mod agent {
    pub(crate) use virtfleet_agent_host::dns::{QueryMessage, Verdict};
    pub(crate) use virtfleet_agent_service::server::filter_of_query;
}
#[path = "../fuzz/src/targets/mod.rs"]
mod targets;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(name)
}

/// The files of each folder below `name`, with the folder's name; a folder is a target.
fn samples(name: &str) -> Vec<(String, PathBuf, Vec<u8>)> {
    let mut samples = Vec::new();
    let Ok(folders) = fs::read_dir(folder(name)) else {
        return samples;
    };
    for folder in folders.map(Result::unwrap) {
        let target = folder.file_name().into_string().unwrap();
        for file in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            samples.push((target.clone(), file.path(), fs::read(file.path()).unwrap()));
        }
    }
    samples.sort();
    samples
}

fn play(target: &str, play: targets::Play, what: &str, bytes: &[u8]) {
    let played = catch_unwind(AssertUnwindSafe(|| play(bytes)));
    assert!(played.is_ok(), "target {target}, {what}");
}

#[test]
fn every_sample_belongs_to_a_target() {
    let known: Vec<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    assert!(known.is_sorted(), "{known:?}");
    let script = fs::read_to_string(folder("run.sh")).unwrap();
    for name in &known {
        assert!(
            script.contains(&format!("\n{name} ")),
            "run.sh does not play {name}"
        );
    }
    for (target, path, _) in samples("seeds").into_iter().chain(samples("regressions")) {
        assert!(known.contains(&target.as_str()), "{}", path.display());
    }
}

#[test]
fn what_was_found_stays_mended() {
    for (target, path, bytes) in samples("regressions") {
        let (_, run) = targets::TARGETS.iter().find(|(name, _)| *name == target).unwrap();
        play(&target, *run, &path.display().to_string(), &bytes);
    }
}

#[test]
fn every_target_takes_every_sample_whole_and_broken() {
    let samples = [samples("seeds"), samples("regressions")].concat();
    for (name, run) in targets::TARGETS {
        for (target, path, bytes) in &samples {
            play(name, *run, &path.display().to_string(), bytes);
            // Its own it also takes cut, and with a byte that is another.
            let steps = if target == name { 16 } else { 0 };
            for step in 0..steps {
                let at = bytes.len() * step / steps;
                play(
                    name,
                    *run,
                    &format!("{}, cut at {at}", path.display()),
                    &bytes[..at],
                );
                let mut other = bytes.clone();
                other[at] ^= 1 << (step % 8);
                play(
                    name,
                    *run,
                    &format!("{}, byte {at} changed", path.display()),
                    &other,
                );
            }
        }
    }
}

/// For so long each target takes what a fixed seed makes of its samples.
const EACH: Duration = Duration::from_millis(1500);

/// A few mutations of a sample: bytes that are other, that are there again, or not at all, and
/// pieces of other samples.
fn mutated(samples: &[Vec<u8>], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = samples[rng.usize(..samples.len())].clone();
    for _ in 0..=rng.usize(..4) {
        let (from, to) = (rng.usize(..=bytes.len()), rng.usize(..=bytes.len()));
        let range = from.min(to)..from.max(to).min(from.min(to) + 32);
        match rng.usize(..4) {
            0 if !bytes.is_empty() => {
                let at = rng.usize(..bytes.len());
                bytes[at] = rng.u8(..);
            }
            1 => drop(bytes.drain(range)),
            2 => {
                let piece = bytes[range].to_vec();
                bytes.splice(from..from, piece);
            }
            _ => {
                let other = &samples[rng.usize(..samples.len())];
                let piece = &other[..rng.usize(..=other.len().min(64))];
                bytes.splice(from..from, piece.iter().copied());
            }
        }
    }
    bytes.truncate(8192);
    bytes
}

#[test]
fn every_target_takes_what_a_fixed_seed_makes_of_its_samples() {
    let all = [samples("seeds"), samples("regressions")].concat();
    for (name, run) in targets::TARGETS {
        let own = all.iter().filter(|(target, ..)| target == name);
        let mut samples: Vec<Vec<u8>> = own.map(|(.., bytes)| bytes.clone()).collect();
        samples.push(b"a: 1\n".to_vec());
        let mut rng = fastrand::Rng::with_seed(20_261_123);
        let begun = Instant::now();
        let mut runs = 0;
        while runs < 20_000 && begun.elapsed() < EACH {
            let bytes = mutated(&samples, &mut rng);
            play(name, *run, &format!("run {runs} of the seed: {bytes:?}"), &bytes);
            runs += 1;
        }
        println!("{name}: {runs} runs");
    }
}
