//! Scripts of `tests/fixtures/health` with a real guest: each state is created in the guest or its
//! network, and a real collector pulls it. What the collector's API shows then goes through the
//! script, so that a state costs seconds and the hold times pass in the script's time.

mod kubelet;
mod states;
mod world;

use std::{
    collections::BTreeSet,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_collector_core::view::VmState;
use virtfleet_tests::{guest, skip};

use self::{
    states::GuestState,
    world::{Seen, World},
};
use crate::health_scripts::{
    differences,
    real::RealPull,
    script::{Expectation, Pulls, Script},
    scripts,
    stage::Stage,
};

/// The command that runs what takes minutes.
const SOAK: &str = "make guest-soak";

#[test]
fn the_real_scripts_are_those_of_the_states() {
    let real = scripts().into_iter().filter(|(_, script)| script.is_real);
    let real: BTreeSet<_> = real.map(|(name, _)| name).collect();
    let all = states::quick().chain(states::slow());
    let states: Vec<_> = all.map(|state| state.script.to_owned()).collect();
    assert_eq!(real, states.iter().cloned().collect());
    assert_eq!(states.len(), real.len(), "a script has two states");
    let quick = states::quick().count();
    assert!(quick >= 15, "{quick} scripts in each run");
}

#[test]
fn tier4_real_guests_get_the_verdicts_of_their_scripts() {
    let test = "tier4_real_guests_get_the_verdicts_of_their_scripts";
    if skip::need(4, test, skip::program("nft")).unwrap().is_some() {
        run_all(test, &states::quick().collect::<Vec<_>>());
    }
}

#[test]
fn tier4_disks_and_pauses_get_the_verdicts_of_their_scripts() {
    let test = "tier4_disks_and_pauses_get_the_verdicts_of_their_scripts";
    if !skip::deferred(4, test, SOAK) {
        run_all(test, &states::slow().collect::<Vec<_>>());
    }
}

/// Creates the states one after the other in one guest, and compares each with its script.
fn run_all(test: &str, states: &[GuestState]) {
    guest::play(test, |scene| {
        let begun = Instant::now();
        let mut world = World::new(scene)?;
        world.begin()?;
        let mut healthy = world.until_healthy(0)?;
        eprintln!(
            "{:5.1} s until the guest was healthy",
            begun.elapsed().as_secs_f64()
        );
        let scripts = scripts();
        let mut failed = Vec::new();
        for state in states {
            let script = scripts.iter().find(|(name, _)| name == state.script);
            let (_, script) = script.with_context(|| format!("no script {}", state.script))?;
            let since = Instant::now();
            match run(&world, state, &healthy) {
                Ok((sick, recovered)) => {
                    for difference in compare(script, &healthy, &sick, &recovered)? {
                        failed.push(format!("{}: {difference}", state.script));
                    }
                    healthy = recovered;
                }
                Err(error) => {
                    eprintln!("{}: {error:#}", state.script);
                    failed.push(format!("{}: {error:#}", state.script));
                    (state.undo)(&world).ok();
                    healthy = world.until_healthy(now_ms()?)?;
                }
            }
            eprintln!("{:5.1} s {}", since.elapsed().as_secs_f64(), state.script);
        }
        eprintln!("{:5.1} s in all", begun.elapsed().as_secs_f64());
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        Ok(())
    });
}

/// Creates a state and removes it: what is seen meanwhile, and when the guest is healthy again.
fn run(world: &World, state: &GuestState, before: &Seen) -> Result<(Seen, Seen)> {
    let last = before.vm.vm.agent.last_try_ms;
    (state.create)(world).context("create it")?;
    let sick = world.until("it shows", |seen| {
        let is_new = seen.vm.vm.agent.last_try_ms > last || seen.vm.vm.state == VmState::Paused;
        is_new && (state.shows)(seen)
    })?;
    (state.undo)(world).context("undo it")?;
    Ok((sick, world.until_healthy(now_ms()?)?))
}

fn now_ms() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::try_from(now.as_millis())?)
}

/// What differs from the script if the pulls have these results. The script recovers where its
/// agent answers again.
fn compare(script: &Script, healthy: &Seen, sick: &Seen, recovered: &Seen) -> Result<Vec<String>> {
    let mut stage = Stage::of_guest(RealPull::of(&healthy.vm)?);
    let mut found = differences(&stage, &Expectation::healthy());
    ensure!(found.is_empty(), "it is not healthy before: {found:?}");
    // A pause or a migration explains it.
    let mut is_explained = sick.node.ready == "True";
    for (number, step) in script.steps.iter().enumerate() {
        let has_recovered = number > 0 && step.rest.agent == Some(Pulls::Answers);
        let pull = match number {
            0 => Some(RealPull::of(&sick.vm)?),
            _ if has_recovered => Some(RealPull::of(&recovered.vm)?),
            _ => None,
        };
        for (name, patch) in &step.objects {
            is_explained |= *name == "vmi";
            if *name == "node" {
                is_as_seen(patch, sick)?;
                is_explained = true;
            }
        }
        stage.play_with(step, pull);
        for difference in differences(&stage, &step.expect) {
            found.push(format!("at {}s: {difference}", step.at_seconds));
        }
    }
    ensure!(
        is_explained,
        "the kubelet was silent, and the script does not say so"
    );
    Ok(found)
}

/// Checks that a script's change of the Node is what the stand-in for the node controller saw.
fn is_as_seen(node: &Value, sick: &Seen) -> Result<()> {
    let status = |kind: &str| {
        let all = node["status"]["conditions"].as_array().into_iter().flatten();
        let mut of_kind = all.filter(|one| one["type"] == kind);
        of_kind.next().and_then(|one| one["status"].as_str())
    };
    let (ready, seen) = (status("Ready"), &sick.node);
    ensure!(
        ready == Some(seen.ready),
        "Ready is {}, not {ready:?}",
        seen.ready
    );
    let has_pressure = status("MemoryPressure") == Some("True");
    ensure!(has_pressure == seen.has_memory_pressure, "{node} and {seen:?}");
    Ok(())
}

/// A stopped agent, until the real collector itself shows the verdict, and until it is gone.
#[test]
fn tier4_a_stopped_agent_gets_its_verdict_in_real_time() {
    let test = "tier4_a_stopped_agent_gets_its_verdict_in_real_time";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    guest::play(test, |scene| {
        let mut world = World::new(scene)?;
        world.begin()?;
        world.until_healthy(0)?;
        world.until("the verdict Healthy", |seen| is(seen, &Expectation::healthy()))?;
        let (_, script) = scripts()
            .into_iter()
            .find(|(name, _)| name == "agent-stopped")
            .context("no script agent-stopped")?;
        let sick = script.steps.iter().map(|step| &step.expect);
        let sick = sick
            .clone()
            .find(|expected| expected.cause.is_some())
            .context("nothing is wrong in the script")?;
        let state = states::quick().find(|state| state.script == "agent-stopped");
        let state = state.context("no state agent-stopped")?;
        let begun = Instant::now();
        (state.create)(&world)?;
        world.until("its verdict", |seen| is(seen, sick))?;
        eprintln!("{:5.1} s until its verdict", begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        (state.undo)(&world)?;
        world.until("the verdict Healthy again", |seen| {
            is(seen, &Expectation::healthy())
        })?;
        eprintln!(
            "{:5.1} s until it was Healthy again",
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    });
}

/// Whether the collector shows the expected verdict.
fn is(seen: &Seen, expected: &Expectation) -> bool {
    let health = &seen.vm.vm.health;
    let cause = health.cause.map(|cause| cause.as_str().to_owned());
    health.verdict == expected.verdict
        && cause == expected.cause
        && expected
            .reason
            .as_ref()
            .is_none_or(|reason| *reason == health.reason)
}
