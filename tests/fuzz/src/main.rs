//! The fuzzer: libFuzzer plays the target that `VIRTFLEET_FUZZ` names, and the memory
//! that a run uses is bounded by its input.
//!
//! `run.sh` builds and runs it. Without cargo-fuzz: that needs a nightly compiler, and all it would
//! add are a sanitizer of memory, which code without `unsafe` has little use for, and flags, which
//! `run.sh` gives.

#![no_main]

#[allow(dead_code, unused, reason = "the fuzzer needs less of them than the agent")]
mod agent;
mod memory;
mod targets;

use std::{env, sync::OnceLock};

static PLAY: OnceLock<targets::Play> = OnceLock::new();

fn chosen() -> targets::Play {
    let name = env::var("VIRTFLEET_FUZZ").unwrap_or_default();
    let found = targets::TARGETS.iter().find(|(other, _)| *other == name);
    found
        .unwrap_or_else(|| panic!("VIRTFLEET_FUZZ={name:?}: there is no such target"))
        .1
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let play = PLAY.get_or_init(chosen);
    memory::bounded(data.len(), || play(data));
});
