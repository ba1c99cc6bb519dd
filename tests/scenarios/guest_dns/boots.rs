//! First and second boots, and the collision of two caches in a guest.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    guest::{Scene, Suite, play},
    real::AGENT,
    skip,
    wait::eventually,
};

use crate::guest_dns::kit::{INFRA, NODE_LOCAL, SOAK, World, findings, needs};

const TIER: u8 = 4;
const BOTH: &str = "169.254.20.10,10.96.0.10";
/// What tells of the address while no cache is there yet.
const FORESEEN: &str = "dns-collision-predicted info 169.254.20.10";

/// How many lookups two changes may delay: systemd-resolved is reloaded once in each.
const RELOADS: usize = 2;
/// The same where it cannot reload and is restarted, which takes seconds under emulation.
const RESTARTS: usize = 8;

/// After a boot: verified by the one that does not collide, and everything that looks at the guest
/// says the same.
fn as_it_should_be(world: &World, boot: &str) -> Result<Value> {
    let machine = &world.machine;
    machine.run_until(
        "systemctl is-active -q virtfleet-dns virtfleet-agent",
        "the agent's units",
    )?;
    let state = world.verified(&[INFRA])?;
    let found = findings(&state);
    ensure!(found.iter().any(|one| one == FORESEEN), "{found:?}");
    // No lease's server is beside ours, on any link.
    let upstreams = machine.run("cat /run/systemd/resolve/resolv.conf; resolvectl dns")?;
    ensure!(!upstreams.contains(NODE_LOCAL), "{upstreams}");
    // The link has kept, or got again, its lease.
    let address = machine.run("ip -4 -br address show scope global")?;
    ensure!(address.contains(" 10.0.2.1"), "{address}");

    let doctor = machine.sh(&format!("{AGENT} doctor"))?;
    ensure!(doctor.code == 0, "{}", doctor.stdout);
    let report: Value = serde_json::from_str(&machine.run(&format!("{AGENT} report"))?)?;
    let section = &report["sections"]["dns"];
    ensure!(
        section["status"] == "ok" && section["items"][0]["state"] == "verified",
        "{section:#}"
    );
    machine.run_until(
        "curl -fsS http://127.0.0.1:10911/metrics -o /run/page",
        "the agent's page",
    )?;
    let page = machine.run("grep ^virtfleet_dns_ /run/page")?;
    for sample in [
        "virtfleet_dns_state{state=\"verified\"} 1",
        &format!("virtfleet_dns_nameserver_up{{nameserver=\"{INFRA}\"}} 1"),
        "virtfleet_dns_rollbacks_total 0",
    ] {
        ensure!(
            page.lines().any(|line| line == sample),
            "{sample} is not in\n{page}"
        );
    }
    let failed = machine.run("systemctl list-units --failed --no-legend --plain 'virtfleet*'")?;
    ensure!(failed.is_empty(), "{failed}");
    println!("{boot}: {}", times(world, &state)?);
    Ok(state)
}

/// When what came in a boot, in seconds from its beginning.
fn times(world: &World, state: &Value) -> Result<String> {
    let number = |script: &str| -> Result<f64> {
        let text = world.machine.run(script)?;
        let micros: f64 = text
            .trim()
            .parse()
            .with_context(|| format!("{script}: {text:?}"))?;
        Ok(micros / 1e6)
    };
    let of_unit = |property: &str| number(&format!("systemctl show -P {property} virtfleet-dns"));
    let began = of_unit("ExecMainStartTimestampMonotonic")?;
    let ended = of_unit("ExecMainExitTimestampMonotonic")?;
    let script = "journalctl -b -o json -u systemd-networkd | grep -m 1 'DHCPv4 address' | sed -E 's/.*\"__MONOTONIC_TIMESTAMP\" *: *\"([0-9]+)\".*/\\1/'";
    // The journal moves from memory to the disk at about this time, and journalctl may find
    // neither.
    let lease = eventually(Duration::from_secs(30), "networkd's lease in the journal", || {
        number(script)
    })?;
    let verified = state["verifiedAtBoottimeMs"]
        .as_f64()
        .context("verifiedAtBoottimeMs")?
        / 1e3;
    Ok(format!(
        "lease at {lease:.2} s, virtfleet-dns from {began:.2} to {ended:.2} s ({:.2} s), verified at {verified:.2} s ({:+.2} s after the lease), {} changes",
        ended - began,
        verified - lease,
        state["changes"]
    ))
}

/// The user cluster's cache starts at the address that the platform hands out, and no lookup fails.
fn the_cache_comes(world: &World) -> Result<()> {
    world.start_cache()?;
    world.more(20)?;
    let through = world.through_the_cache("pod.example.com")?;
    ensure!(through == "0 1", "a pod gets {through}");
    let state = world.pass()?;
    ensure!(state["standing"] == "verified", "{state:#}");
    let found = findings(&state);
    ensure!(
        found.iter().any(|one| one == "dns-collision info 169.254.20.10"),
        "{found:?}"
    );
    Ok(())
}

/// The same where the agent may only look, and the address is all that the platform hands out: told
/// before, broken then, and mended by what the finding says.
fn without_being_allowed(world: &World) -> Result<()> {
    let machine = &world.machine;
    world.stop_cache()?;
    world.set("{manage: off}")?;
    let state = world.pass()?;
    ensure!(state["standing"] == "off", "{state:#}");
    world.renew(NODE_LOCAL)?;
    machine.run_until(
        "getent ahostsv4 back.example.com >/dev/null",
        "names by what is handed out",
    )?;
    world.set("{manage: report-only}")?;
    let state = world.pass()?;
    ensure!(state["standing"] == "colliding", "{state:#}");
    let found = findings(&state);
    // In use, and the last verified one is known: a warning.
    let foreseen = "dns-collision-predicted warning 169.254.20.10";
    ensure!(found.iter().any(|one| one == foreseen), "{found:?}");

    world.start_cache()?;
    let broken = machine.sh("RES_OPTIONS='timeout:2 attempts:2' getent ahostsv4 broken.example.com")?;
    ensure!(broken.code != 0, "it still resolves: {}", broken.stdout);
    let state = world.pass()?;
    let found = findings(&state);
    for told in [
        "dns-collision critical 169.254.20.10",
        "dns-broken critical resolver",
    ] {
        ensure!(found.iter().any(|one| one == told), "{told} is not in {found:?}");
    }

    // The remedy, with the cache in place.
    let begun = Instant::now();
    world.set("{manage: auto, policy: ClusterFirst, cluster: {nameservers: [10.96.0.10], namespace: ns}}")?;
    world.pass()?;
    world.verified(&[INFRA])?;
    println!("mended {:?} after the settings were written", begun.elapsed());
    Ok(())
}

fn story(scene: &Scene) -> Result<()> {
    let world = World::first_boot(scene, Suite::Trixie, BOTH, "")?;
    let machine = &world.machine;
    as_it_should_be(&world, "first boot")?;
    let written = world.written()?;
    ensure!(written.contains("zz-virtfleet"), "{written}");
    world.bring_cache(scene)?;
    machine.run("sync")?;

    machine.power_off()?;
    machine.boot_to_agent()?;
    let state = as_it_should_be(&world, "second boot")?;
    ensure!(state["changes"] == 0, "{state:#}");
    ensure!(
        world.written()? == written,
        "{written}\nbecame\n{}",
        world.written()?
    );

    // Restored by `manage: off`, applied again, then the cache starts; lookups run all along.
    world.watch()?;
    world.set("{manage: off}")?;
    world.pass()?;
    let restored = machine.run("resolvectl dns")?;
    ensure!(restored.contains(NODE_LOCAL), "{restored}");
    world.set("{manage: auto}")?;
    let begun = Instant::now();
    world.pass()?;
    println!("put right in {:?} on a guest that runs", begun.elapsed());
    world.verified(&[INFRA])?;
    world.looked_up(RELOADS)?;
    machine.run("systemctl stop lookups")?;
    world.watch()?;
    the_cache_comes(&world)?;
    world.looked_up(0)?;
    machine.run("systemctl stop lookups")?;
    without_being_allowed(&world)
}

#[test]
fn tier4_two_caches_at_one_address_from_the_first_boot_on() {
    let test = "tier4_two_caches_at_one_address_from_the_first_boot_on";
    if skip::deferred(TIER, test, SOAK) {
        return;
    }
    play(test, |scene| {
        if skip::need(TIER, test, needs(Suite::Trixie))?.is_none() {
            return Ok(());
        }
        story(scene)
    });
}

#[test]
fn tier4_dns_of_debian_12_is_verified_and_stays_so() {
    let test = "tier4_dns_of_debian_12_is_verified_and_stays_so";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    play(test, |scene| {
        if skip::need(TIER, test, needs(Suite::Bookworm))?.is_none() {
            return Ok(());
        }
        let world = World::first_boot(scene, Suite::Bookworm, BOTH, "")?;
        as_it_should_be(&world, "first boot of Debian 12")?;
        // networkd of systemd 252 gives the link's lease up when it takes its files up again, and
        // gets the same one at once.
        let machine = &world.machine;
        let lease = "cat /run/systemd/netif/leases/* | grep -E '^(ADDRESS|SERVER_ADDRESS)='; ip -4 -br address show scope global; ip route show default";
        let before = machine.run(lease)?;
        world.watch()?;
        for manage in ["off", "auto"] {
            world.set(&format!("{{manage: {manage}}}"))?;
            world.pass()?;
            machine.run_until(
                "networkctl list --no-legend | grep -v -E ' lo ' | grep -q configured",
                "the link",
            )?;
            let now = machine.run(lease)?;
            ensure!(now == before, "{manage}: {before}\nbecame\n{now}");
        }
        world.verified(&[INFRA])?;
        world.looked_up(RESTARTS)?;
        machine.run("sync")?;
        machine.power_off()?;
        machine.boot_to_agent()?;
        as_it_should_be(&world, "second boot of Debian 12").map(drop)
    });
}
