//! Tier 3: remote write of several collectors on a real API server while the leader changes, and of
//! a VM that another user cluster takes.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

mod world;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::live::{Collector, WAIT_TIMEOUT},
    parts, skip, wait,
};
use world::{INTERVAL, LEASE, RETRY, Received, World, now_ms};

/// Longest time for which a busy machine delays a page, a request or the Lease.
const BUSY_MS: i64 = 5000;

fn name(vmi: &Value) -> &str {
    vmi["metadata"]["name"].as_str().unwrap()
}

/// Waits until it leads; returns the last time at which it did not yet.
fn until_leads(collector: &Collector) -> i64 {
    let mut before = now_ms();
    wait::eventually(WAIT_TIMEOUT, "the other collector leads", || {
        let asked = now_ms();
        if collector.leads()? {
            return Ok(());
        }
        before = asked;
        anyhow::bail!("not yet")
    })
    .unwrap();
    before
}

fn until_standby(collector: &Collector) {
    wait::eventually(WAIT_TIMEOUT, "the collector is a standby", || {
        ensure!(!collector.leads()?, "it leads");
        Ok(())
    })
    .unwrap();
}

/// The new leader's first page is not older than its term, and follows the last page of the former
/// one within the documented time.
fn no_page_is_early_or_late(world: &World, (former, new): (&str, &str), standby_ms: i64, gap_ms: i64) {
    for vmi in &world.vmis {
        let ended = *world.ups(former, name(vmi)).unwrap().last().unwrap();
        let times = world.ups(new, name(vmi)).unwrap();
        // It may have led before the former one.
        let begun = *times.iter().find(|at| **at > ended).unwrap();
        assert!(
            begun > standby_ms,
            "{new} wrote at {begun}, and did not lead at {standby_ms}"
        );
        assert!(
            begun - ended <= gap_ms,
            "{} ms without a page of {}",
            begun - ended,
            name(vmi)
        );
    }
}

#[test]
fn another_leader_goes_on_without_a_sample_twice_tier3() {
    let test = "another_leader_goes_on_without_a_sample_twice_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let world = World::new(3).unwrap();
    world.tenant("blue").unwrap();
    let mut a = world.collector("a").unwrap();
    world.until_pages("/fleet/a", 2).unwrap();
    let b = world.collector("b").unwrap();
    world.until_pages("/fleet/a", 4).unwrap();
    until_standby(&b);
    let early = world.ups("/fleet/b", name(&world.vmis[0])).unwrap();
    assert!(early.is_empty(), "a standby wrote at {early:?}");

    // Killed: the others wait for the end of its term.
    let term_ms = i64::try_from((LEASE + RETRY + 2 * INTERVAL).as_millis()).unwrap() + BUSY_MS;
    a.process.signal(Signal::SIGKILL).unwrap();
    let killed_ms = now_ms();
    a.process.wait(WAIT_TIMEOUT).unwrap();
    let standby_ms = until_leads(&b);
    world.until_pages("/fleet/b", 3).unwrap();
    no_page_is_early_or_late(&world, ("/fleet/a", "/fleet/b"), standby_ms, term_ms);

    // Stopped for longer than its term, as by a hung machine: it goes on as a standby.
    let mut c = world.collector("c").unwrap();
    b.process.signal(Signal::SIGSTOP).unwrap();
    let standby_ms = until_leads(&c);
    b.process.signal(Signal::SIGCONT).unwrap();
    world.until_pages("/fleet/c", 3).unwrap();
    until_standby(&b);
    no_page_is_early_or_late(&world, ("/fleet/b", "/fleet/c"), standby_ms, term_ms);

    // Ended in order: it releases the Lease, and what it has queued is delivered.
    c.process.signal(Signal::SIGTERM).unwrap();
    let standby_ms = until_leads(&b);
    assert!(c.process.wait(WAIT_TIMEOUT).unwrap().success());
    wait::eventually(WAIT_TIMEOUT, "the former standby goes on", || {
        for vmi in &world.vmis {
            let ended = world.ups("/fleet/c", name(vmi))?;
            let ended = *ended.last().context("no page")?;
            let times = world.ups("/fleet/b", name(vmi))?;
            let later = times.iter().filter(|at| **at > ended).count();
            ensure!(later >= 2, "{later} pages of {}", name(vmi));
        }
        Ok(())
    })
    .unwrap();
    let release_ms = i64::try_from((RETRY + 2 * INTERVAL).as_millis()).unwrap() + BUSY_MS;
    no_page_is_early_or_late(&world, ("/fleet/c", "/fleet/b"), standby_ms, release_ms);

    // The tenant's receiver got one sequence of samples, and none of them ended.
    let mut times: BTreeMap<BTreeMap<String, String>, BTreeSet<i64>> = BTreeMap::new();
    for one in world.received().unwrap() {
        assert!(!one.is_stale, "a series has ended: {one:?}");
        if one.path == "/tenant/blue" {
            let is_new = times.entry(one.labels.clone()).or_default().insert(one.at_ms);
            assert!(is_new, "twice: {one:?}");
        }
    }
    for vmi in &world.vmis {
        let own = times
            .iter()
            .filter(|(labels, _)| labels["__name__"] == "up" && labels["name"] == name(vmi));
        let own: Vec<_> = own.collect();
        let [(_, times)] = own.as_slice() else {
            panic!("{own:?}");
        };
        let leaders = world.ups("/fleet/", name(vmi)).unwrap();
        // What a killed leader had in memory is lost in each stream for itself: more than one page
        // on a busy machine.
        let until = times.last().copied().unwrap_or_default();
        let in_memory = killed_ms - BUSY_MS..=killed_ms;
        let missing: Vec<_> = leaders
            .iter()
            .filter(|at| **at <= until && !times.contains(at) && !in_memory.contains(at))
            .collect();
        assert!(missing.len() <= 1, "{missing:?} of {leaders:?}");
    }
}

#[test]
fn a_vm_of_another_tenant_ends_in_the_former_ones_receiver_tier3() {
    let test = "a_vm_of_another_tenant_ends_in_the_former_ones_receiver_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let world = World::new(2).unwrap();
    world.tenant("blue").unwrap();
    world.tenant("green").unwrap();
    // Its receiver is the infra API server.
    let api = world.infra.url().replace("https://", "http://");
    world.tenant_at("red", &format!("{api}/api/v1/secrets")).unwrap();
    let collector = world.collector("a").unwrap();
    world.until_pages("/tenant/blue", 2).unwrap();
    let moved = name(&world.vmis[0]);
    let label = json!({ "metadata": { "labels": { "tenant": "green" } } });
    world.infra.merge(&world.vmis[0], &label).unwrap();
    wait::eventually(WAIT_TIMEOUT, "its pages arrive in the other tenant", || {
        let pages = world.ups("/tenant/green", moved)?.len();
        ensure!(pages >= 4, "{pages} pages");
        Ok(())
    })
    .unwrap();

    let begun = world.ups("/tenant/green", moved).unwrap()[0];
    let other = name(&world.vmis[1]);
    // The streams are sent independently: that of the former tenant may be later.
    let received = wait::eventually(WAIT_TIMEOUT, "its series end in the former tenant", || {
        let received = world.received()?;
        let ours = |one: &&Received| one.path == "/tenant/blue" && one.is("name", moved);
        let last: BTreeMap<_, _> = received
            .iter()
            .filter(ours)
            .map(|one| (&one.labels, one.is_stale))
            .collect();
        let endless: Vec<_> = last.iter().filter(|(_, is_stale)| !**is_stale).collect();
        ensure!(endless.is_empty(), "series without an end: {endless:?}");
        ensure!(last.len() > 100, "{} series", last.len());
        let last = world.ups("/tenant/blue", other)?.last().copied();
        ensure!(last > Some(begun), "the other VM's series ended at {last:?}");
        Ok(received)
    })
    .unwrap();
    let mut last: BTreeMap<&BTreeMap<String, String>, i64> = BTreeMap::new();
    for one in received
        .iter()
        .filter(|one| one.path == "/tenant/blue" && one.is("name", moved))
    {
        assert!(one.is("cluster", "blue"), "{one:?}");
        let before = last.insert(&one.labels, one.at_ms);
        assert!(before.is_none_or(|at| at < one.at_ms), "{before:?}, then {one:?}");
        assert!(
            one.is_stale || one.at_ms < begun,
            "after the first page in green: {one:?}"
        );
    }
    for one in received.iter().filter(|one| one.path == "/tenant/green") {
        assert!(
            one.is("cluster", "green") && one.is("name", moved) && !one.is_stale,
            "{one:?}"
        );
    }

    // A tenant whose receiver is the API server gets no connection to it.
    let label = json!({ "metadata": { "labels": { "tenant": "red" } } });
    world.infra.merge(&world.vmis[1], &label).unwrap();
    wait::eventually(WAIT_TIMEOUT, "the API server is not dialled", || {
        let streams = collector.json("/api/v1/queues")?;
        let items = streams["items"].as_array().context("items")?;
        let red = items.iter().find(|item| item["stream"] == "cluster/red");
        let message = red.context("no stream")?["lastError"]["message"].to_string();
        ensure!(message.contains("own API server"), "{message}");
        Ok(())
    })
    .unwrap();
}
