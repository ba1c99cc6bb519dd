//! Tier 3: labels that follow, written by one of several collectors, on real API servers.

mod stage;

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use stage::{MARKER, NAMESPACE, Stage, WAIT_TIMEOUT};
use virtfleet_tests::{
    cluster::{self, Entry, Follow, live::Collector},
    parts, skip, wait,
};

const ANNOTATION: &str = "virtfleet.io/owned-labels";

#[test]
fn the_life_of_a_vm_tier3() {
    let test = "the_life_of_a_vm_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let stage = Stage::new().unwrap();
    let collector = stage.collector("a").unwrap();
    collector.until_leads().unwrap();

    // Created, and its node registers.
    let vmi = stage.vmi("vm-1", "host-1").unwrap();
    stage.node("vm-1").unwrap();
    stage.until_label("vm-1", "rack", Some("rack-1")).unwrap();
    let node = stage.live_node("vm-1").unwrap();
    let owned = node["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
    assert!(owned.contains("rack-1"), "{owned}");
    let addresses = node["status"]["addresses"].as_array().unwrap().len();

    // A migration that fails writes nothing; one that succeeds is followed.
    let mark = stage.tenant.audit_mark().unwrap();
    let failed = json!({ "sourceNode": "host-1", "targetNode": "host-2", "failed": true, "endTimestamp": "2026-01-01T00:00:09Z" });
    let at = |host: &str| cluster::vmi(NAMESPACE, "vm-1").phase("Running").on(host);
    stage.infra.apply(&at("host-1").migration_state(failed)).unwrap();
    stage.until_idle(&collector, "host-1").unwrap();
    assert_eq!(stage.patches(mark).unwrap().len(), 0);
    let moved = json!({ "sourceNode": "host-1", "targetNode": "host-2", "completed": true, "endTimestamp": "2026-01-01T00:01:09Z" });
    stage.infra.apply(&at("host-2").migration_state(moved)).unwrap();
    stage.until_label("vm-1", "rack", Some("rack-2")).unwrap();
    // A label is visible before its patch is in the audit log.
    let patches = wait::eventually(WAIT_TIMEOUT, "the patch is logged", || {
        let patches = stage.patches(mark)?;
        ensure!(!patches.is_empty(), "none");
        Ok(patches)
    });
    let patches = patches.unwrap();
    assert_eq!(patches.len(), 1, "{patches:?}");
    let sent = &patches[0].request;
    assert!(
        sent["spec"].is_null() && sent["status"].is_null(),
        "metadata only: {sent}"
    );
    assert!(
        sent["metadata"]["resourceVersion"].is_string() && sent["metadata"]["uid"].is_string(),
        "{sent}"
    );
    let told = wait::eventually(WAIT_TIMEOUT, "an Event tells of the move", || {
        let told = stage.events(NAMESPACE, "LabelsMoved")?;
        ensure!(!told.is_empty(), "none");
        Ok(told)
    });
    assert!(told.unwrap()[0].contains("rack-1 → rack-2"));

    // GuestHealth says the same, owned by the VMI.
    let health = stage
        .until_health("vm-1", "LabelsInSync", "True", "InLine")
        .unwrap();
    stage.until_health("vm-1", "Placed", "True", "Placed").unwrap();
    assert_eq!(
        health["metadata"]["ownerReferences"][0]["uid"],
        vmi["metadata"]["uid"]
    );

    // The host's label flaps: seen, and not followed.
    let mark = stage.tenant.audit_mark().unwrap();
    for rack in ["rack-8", "rack-7"] {
        stage.host("host-2", rack).unwrap();
        let seen = wait::eventually(WAIT_TIMEOUT, "the other value is seen", || {
            let labels = collector.json("/api/v1/labels")?;
            let items = labels["items"].as_array().context("a list")?;
            let of_vm = |one: &&Value| one["node"] == "vm-1" && one["key"] == "rack";
            let found = items.iter().find(of_vm).context("no decision")?.clone();
            ensure!(found["desired"] == rack, "{found}");
            Ok(found)
        });
        let seen = seen.unwrap();
        assert_eq!(
            (&seen["action"], &seen["current"]),
            (&json!("keep"), &json!("rack-2"))
        );
    }
    stage.host("host-2", "rack-2").unwrap();
    stage.until_idle(&collector, "host-2").unwrap();
    assert_eq!(stage.patches(mark).unwrap().len(), 0);

    // The host is relabelled for good, the policy edited, a key withdrawn.
    stage.host("host-2", "rack-9").unwrap();
    stage.until_label("vm-1", "rack", Some("rack-9")).unwrap();
    stage.policy(&["rack", "room"]).unwrap();
    stage.until_label("vm-1", "room", Some("room-1")).unwrap();
    stage.policy(&["rack"]).unwrap();
    stage.until_label("vm-1", "room", None).unwrap();
    let node = stage.live_node("vm-1").unwrap();
    assert_eq!(
        node["status"]["addresses"].as_array().unwrap().len(),
        addresses,
        "both families are still there"
    );

    // Deleted and made again under the same name.
    stage.tenant.remove(&node).unwrap();
    stage.infra.remove(&at("host-2")).unwrap();
    wait::eventually(WAIT_TIMEOUT, "its GuestHealth goes with it", || {
        ensure!(stage.health("vm-1").is_err(), "it is there");
        Ok(())
    })
    .unwrap();
    // Its pod is there before it runs: both come by two watches.
    let pending = stage.infra.apply(&at("host-1").phase("Pending")).unwrap();
    stage.infra.apply(&cluster::launcher(&pending, &[])).unwrap();
    stage.vmi("vm-1", "host-1").unwrap();
    stage.node("vm-1").unwrap();
    stage.until_label("vm-1", "rack", Some("rack-1")).unwrap();
    let health = stage.until_health("vm-1", "LabelsInSync", "True", "InLine");
    health.unwrap();
    a_failed_vm_is_critical(&stage).unwrap();
}

/// The verdict changes at once, and an Event is recorded.
fn a_failed_vm_is_critical(stage: &Stage) -> anyhow::Result<()> {
    wait::eventually(WAIT_TIMEOUT, "no agent shows the guest", || {
        let verdict = &stage.health("vm-1")?["status"]["verdict"];
        ensure!(verdict == "Unknown", "{verdict}");
        Ok(())
    })?;
    let failed = cluster::vmi(NAMESPACE, "vm-1").phase("Failed").on("host-1");
    stage.infra.apply(&failed)?;
    wait::eventually(WAIT_TIMEOUT, "the verdict is Critical", || {
        let status = &stage.health("vm-1")?["status"];
        let verdict = (&status["verdict"], &status["cause"], &status["reason"]);
        ensure!(
            verdict == (&json!("Critical"), &json!("vm"), &json!("Failed")),
            "{status:#}"
        );
        let events = stage.events(NAMESPACE, "VmCritical")?;
        ensure!(
            events
                .iter()
                .any(|note| note.starts_with("Critical (Failed, cause vm)")),
            "{events:?}"
        );
        Ok(())
    })?;
    stage.until_health("vm-1", "Healthy", "False", "Failed").map(drop)
}

/// Verdict and conditions of a GuestHealth's status, without times and messages.
fn meaning(status: &Value) -> Vec<Value> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions = conditions.map(|one| json!([one["type"], one["status"], one["reason"]]));
    let verdict = [status["verdict"].clone(), status["reason"].clone()];
    verdict.into_iter().chain(conditions).collect()
}

/// The status of a VM's GuestHealth.
fn health_status(stage: &Stage, name: &str) -> anyhow::Result<Value> {
    Ok(stage.health(name)?["status"].clone())
}

/// What was sent in these patches of a GuestHealth, and its status before and after them.
fn explain(name: &str, patches: &[&Entry], before: &Value, now: &Value) -> String {
    let sent = patches.iter().map(|one| {
        let Entry { received, code, .. } = one;
        format!("{received} {} ({code}): {:#}", one.uri, one.request)
    });
    let sent: Vec<_> = sent.collect();
    format!(
        "GuestHealth {name} is written {} times.\nBefore: {before:#}\nNow: {now:#}\nPatches:\n{}",
        patches.len(),
        sent.join("\n")
    )
}

#[test]
fn a_restart_with_nothing_changed_writes_nothing_tier3() {
    let test = "a_restart_with_nothing_changed_writes_nothing_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let stage = Stage::new().unwrap();
    let names: Vec<_> = (0..20).map(|n| format!("vm-{n}")).collect();
    for name in &names {
        let vmi = stage.vmi(name, "host-1").unwrap();
        stage.infra.apply(&cluster::launcher(&vmi, &[])).unwrap();
        stage.node(name).unwrap();
    }
    let first = stage.collector("a").unwrap();
    for name in &names {
        stage.until_label(name, "rack", Some("rack-1")).unwrap();
        stage
            .until_health(name, "LabelsInSync", "True", "InLine")
            .unwrap();
    }
    stage.until_idle(&first, "host-1").unwrap();
    // Only a leader has a Lease to release.
    first.until_leads().unwrap();
    assert!(!stage.holder().unwrap().is_empty());
    first.process.terminate(WAIT_TIMEOUT).unwrap();
    assert_eq!(stage.holder().unwrap(), "", "the Lease was released");
    let before: BTreeMap<_, _> = names
        .iter()
        .map(|name| (name.clone(), health_status(&stage, name).unwrap()))
        .collect();

    let (tenant, infra) = (
        stage.tenant.audit_mark().unwrap(),
        stage.infra.audit_mark().unwrap(),
    );
    let second = stage.collector("b").unwrap();
    second.until_leads().unwrap();
    stage
        .until_idle(&second, "host-1")
        .with_context(|| second.process.log())
        .unwrap();
    let written = stage.tenant.audit_since(tenant).unwrap();
    let reads = ["get", "list", "watch"];
    let writes: Vec<_> = written
        .iter()
        .filter(|one| one.user_agent != "virtfleet-tests" && !reads.contains(&one.verb.as_str()))
        .filter(|one| !one.name.starts_with(MARKER))
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
    let written = stage.infra.audit_since(infra).unwrap();
    let health = written
        .iter()
        .filter(|one| one.resource == "guesthealths" && one.verb == "patch")
        .filter(|one| !one.name.starts_with(MARKER));
    let mut patches: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for one in health {
        patches.entry(&one.name).or_default().push(one);
    }
    for (name, sent) in patches {
        let (before, now) = (&before[name], health_status(&stage, name).unwrap());
        // On a busy machine, the time may have changed a verdict meanwhile.
        assert_ne!(
            meaning(before),
            meaning(&now),
            "{}",
            explain(name, &sent, before, &now)
        );
    }

    // On a busy machine, what follows from the last VM may be late, and a term may end and begin
    // again.
    wait::eventually(WAIT_TIMEOUT, "the collector is at rest", || is_at_rest(&stage)).unwrap();
}

/// Checks that there is no request but those of the Lease and watches while it is renewed five
/// times.
fn is_at_rest(stage: &Stage) -> anyhow::Result<()> {
    let (tenant, infra) = (stage.tenant.audit_mark()?, stage.infra.audit_mark()?);
    wait::eventually(WAIT_TIMEOUT, "the Lease is renewed five times", || {
        let all = stage.infra.audit_since(infra)?.into_iter();
        let renewed = all.filter(|one| one.resource == "leases" && one.verb == "update" && one.code == 200);
        let renewed = renewed.count();
        ensure!(renewed >= 5, "{renewed}");
        Ok(())
    })?;
    let sent = stage.tenant.audit_since(tenant)?.into_iter();
    let sent = sent.chain(stage.infra.audit_since(infra)?);
    let other: Vec<_> = sent
        .filter(|one| one.resource != "leases" && one.verb != "watch")
        .collect();
    ensure!(other.is_empty(), "{other:?}");
    Ok(())
}

/// Waits until exactly one of `pair` leads and the other one refers to it; returns its index. Only
/// the leader says how the labels stand.
fn only_leader(stage: &Stage, pair: &[Collector]) -> anyhow::Result<usize> {
    wait::eventually(WAIT_TIMEOUT, "one leads, and the standby refers to it", || {
        let leads: Vec<_> = pair.iter().map(Collector::leads).collect::<anyhow::Result<_>>()?;
        let leaders: Vec<_> = (0..pair.len()).filter(|one| leads[*one]).collect();
        ensure!(leaders.len() == 1, "{leads:?}");
        let (leader, standby) = (leaders[0], &pair[1 - leaders[0]]);
        pair[leader].json("/api/v1/labels")?;
        let holder = stage.holder()?;
        let Err(said) = standby.ctl(&["labels", "diff"]) else {
            anyhow::bail!("the standby has a truth of its own");
        };
        let said = said.to_string();
        ensure!(
            said.contains(&holder) && said.contains("port-forward pod/"),
            "{holder}: {said}"
        );
        let refused = standby
            .fleet_metrics()
            .err()
            .context("it has series of its own")?;
        ensure!(format!("{refused:#}").contains("not_leading"), "{refused:#}");
        Ok(leader)
    })
}

#[test]
fn a_standby_takes_over_when_the_leader_is_killed_tier3() {
    let test = "a_standby_takes_over_when_the_leader_is_killed_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let stage = Stage::new().unwrap();
    let names: Vec<_> = (0..5).map(|n| format!("vm-{n}")).collect();
    for name in &names {
        stage.vmi(name, "host-1").unwrap();
        stage.node(name).unwrap();
    }
    let mark = stage.tenant.audit_mark().unwrap();
    let follow = Follow::begin(stage.tenant.admin(), "/api/v1/nodes").unwrap();
    let mut pair = vec![stage.collector("c0").unwrap(), stage.collector("c1").unwrap()];
    for round in 0..4 {
        let leader = only_leader(&stage, &pair).unwrap();
        let (host, rack) = [("host-2", "rack-2"), ("host-1", "rack-1")][round % 2];
        for name in &names {
            stage.vmi(name, host).unwrap();
        }
        // In the middle of it.
        let mut killed = pair.remove(leader);
        killed.process.signal(Signal::SIGKILL).unwrap();
        killed.process.wait(WAIT_TIMEOUT).unwrap();
        pair.push(stage.collector(&format!("c{}", round + 2)).unwrap());
        for name in &names {
            stage.until_label(name, "rack", Some(rack)).unwrap();
        }
    }
    // The one that was killed last may have written every label before.
    let leader = only_leader(&stage, &pair).unwrap();
    let marker = stage.until_idle(&pair[leader], "host-1").unwrap();
    // Each Node went from rack to rack as its VM did, whoever wrote it; only the first may have
    // been overtaken.
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    loop {
        let change = follow.next(WAIT_TIMEOUT).unwrap().unwrap();
        let metadata = &change.object["metadata"];
        let name = metadata["name"].as_str().unwrap().to_owned();
        if name == marker {
            break;
        }
        let racks = seen.entry(name).or_default();
        if let Some(rack) = metadata["labels"]["rack"].as_str()
            && racks.last().is_none_or(|last| last != rack)
        {
            racks.push(rack.to_owned());
        }
    }
    let whole = ["rack-1", "rack-2", "rack-1", "rack-2", "rack-1"];
    for name in &names {
        assert!(
            seen[name] == whole || seen[name] == whole[1..],
            "{name}: {seen:?}"
        );
    }
    // A patch that a killed leader sent is done without an answer that counts; an answered one is
    // never a repetition.
    let changed: usize = seen.values().map(Vec::len).sum();
    let patches = stage.patches(mark).unwrap();
    let accepted = patches.iter().filter(|one| one.code == 200).count();
    let unanswered = patches
        .iter()
        .filter(|one| one.code != 200 && one.code != 409)
        .count();
    assert!(accepted <= changed, "{accepted} patches for {changed} changes");
    assert!(
        accepted + unanswered >= changed,
        "{accepted} and {unanswered} of {changed}"
    );
}
