//! The power is cut while DNS is changed: the next boot resolves and is as asked for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Scene, Suite, play},
    real::AGENT,
    sim::Random,
    skip,
    wait::measure,
};

use crate::guest_dns::kit::{CUTS, INFRA, SOAK, World, needs};

const UNDO: &str = "/var/lib/virtfleet/dns/undo.json";

/// Cuts the power once. Every other cut falls into the verification, which is held: its questions
/// lead nowhere from the first change on. The others fall anywhere after the first change.
fn cut(scene: &Scene, seed: u64) -> Result<String> {
    let world = World::first_boot(
        scene,
        Suite::Trixie,
        "169.254.20.10,10.96.0.10",
        "  dns: { manage: report-only }\n",
    )?;
    let machine = &world.machine;
    machine.run_until("systemctl is-active -q virtfleet-dns", "virtfleet-dns")?;
    let state = world.state()?;
    ensure!(
        state["standing"] == "colliding" && state["changes"] == 0,
        "{state:#}"
    );
    // Stops all triggers, so that only the reconcile run below changes anything.
    machine
        .run("systemctl stop virtfleet-reconcile.path virtfleet-reconcile.timer virtfleet-settings.path")?;
    world.set("{manage: auto}")?;
    machine.run("sync")?;
    let held = seed % 2 == 1;
    let then = if held {
        format!("ip route add blackhole {INFRA}/32")
    } else {
        "true".to_owned()
    };
    machine.run_within(
        &format!(
            "rm -f {UNDO}; systemd-run --quiet --no-block {AGENT} apply dns
             n=0; until [ -e {UNDO} ]; do n=$((n + 1)); [ $n -lt 3000 ] || exit 1; sleep 0.01; done; {then}"
        ),
        Duration::from_mins(4),
    )?;
    let after = Random::new(seed).between(0.0, if held { 6.0 } else { 1.5 });
    measure(Duration::from_secs_f64(after), || Ok(()))?;
    machine.cut_power();
    let said = format!(
        "{after:.2} s after the first change{}",
        if held { ", in the verification" } else { "" }
    );

    machine.boot_to_agent()?;
    let came = || -> Result<String> {
        machine.run_until("systemctl is-active -q virtfleet-dns", "virtfleet-dns")?;
        let state = world.verified(&[INFRA])?;
        ensure!(
            machine.sh(&format!("test -e {UNDO}"))?.code != 0,
            "the journal of the change that did not end is still there"
        );
        let files = world.written()?;
        ensure!(files.contains("resolved.conf.d/zz-virtfleet.conf"), "{files}");
        Ok(format!(
            "verified after {} changes; {}",
            state["changes"], state["done"]
        ))
    };
    let came = came().with_context(|| format!("seed {seed}, cut {said}"))?;
    machine.cut_power();
    Ok(format!("seed {seed}, cut {said}: {came}"))
}

#[test]
fn tier4_the_power_is_cut_while_dns_is_changed() {
    let test = "tier4_the_power_is_cut_while_dns_is_changed";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    let cuts = std::env::var(CUTS).ok().and_then(|text| text.parse().ok());
    for seed in 1..=cuts.unwrap_or(1) {
        play(test, |scene| {
            if skip::need(4, test, needs(Suite::Trixie))?.is_none() {
                return Ok(());
            }
            println!("{}", cut(scene, seed)?);
            Ok(())
        });
    }
}
