//! Specification against guest: a real guest's report, compared with a VMI that asks for what the
//! guest has, and with one that asks for more.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_collector::inventory::folder::reader::FolderState;
use virtfleet_collector_core::{
    dial::DialRules,
    facts::InventoryEvent,
    health::HealthConditionStatus,
    index::FleetIndex,
    pull_result::{Answer, MetricsSummary, PullResult},
    report::KeptReport,
    spec_view::SpecResult,
    usage::UsageCounters,
    view::VmDetail,
};
use virtfleet_tests::{
    guest::{self, Disk, Start, Suite, Vm},
    real, skip,
};
use virtfleet_wire::ids::VmKey;

/// Maximum time of an operation of the agent, under emulation on a busy machine.
const AGENT_TIMEOUT: Duration = Duration::from_mins(3);
/// When the first report is received, in milliseconds since 1970.
const NOW_MS: u64 = 1_800_000_000_000;
/// Longer than a difference must last before it is shown.
const LATER_MS: u64 = 400_000;

/// A VMI with this `spec.domain`.
fn vmi(domain: &Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "namespace": "prod", "name": "stage", "uid": "vmi-1" },
        "spec": { "domain": domain },
        "status": { "phase": "Running", "nodeName": "infra-1" },
    })
}

/// The VM in a collector that has pulled this report twice.
fn collected(domain: &Value, report: &str) -> Result<VmDetail> {
    let mut index = FleetIndex::new(DialRules::default());
    index.set_time(String::new(), NOW_MS);
    index.apply(InventoryEvent::Init);
    let mut folder = FolderState::default();
    let text = vmi(domain).to_string();
    for event in folder.update(Path::new("infra/vmi.json"), Some(&text)) {
        index.apply(event);
    }
    ensure!(folder.findings().is_empty(), "{:?}", folder.findings());
    index.apply(InventoryEvent::Synced);
    let key = VmKey {
        namespace: "prod".parse()?,
        name: "stage".parse()?,
    };
    for at in [NOW_MS, NOW_MS + LATER_MS] {
        index.set_time(String::new(), at);
        index.record_pull(PullResult {
            vm: key.clone(),
            at,
            address: None,
            pushed: false,
            outcome: Ok(Answer {
                report: Box::new(KeptReport::read(report.as_bytes())?),
                metrics: MetricsSummary::default(),
                counters: UsageCounters::default(),
                queues: Box::default(),
                took_ms: 1,
                slow: false,
                certificate: None,
            }),
        });
        index.settle();
    }
    index.detail(&key).context("the VM")
}

/// Paths of the checks with this result.
fn paths(detail: &VmDetail, result: SpecResult) -> Vec<&str> {
    let found = detail.spec.iter().filter(|one| one.result == result);
    found.map(|one| one.path.as_str()).collect()
}

/// Status and reason of `SpecInEffect`.
fn condition(detail: &VmDetail) -> (HealthConditionStatus, &str) {
    let found = detail
        .conditions
        .iter()
        .find(|one| one.kind == "SpecInEffect")
        .unwrap();
    (found.status, &found.reason)
}

#[test]
fn tier4_the_specification_is_compared_with_a_real_guest() {
    let test = "tier4_the_specification_is_compared_with_a_real_guest";
    guest::play(test, |scene| {
        if skip::need(4, test, guest::needs(Suite::Trixie))?.is_none() {
            return Ok(());
        }
        let folder = real::agent_folder(scene.path())?;
        let vm = Vm::new("spec")
            .disk(Disk::blank("data", 256 << 20).serial("data"))
            .disk(Disk::folder("agent", &folder, real::DISK_LABEL).read_only());
        let guest = scene.start(&vm, Start::Booted)?;
        guest.run("mount -o ro LABEL=virtfleet /mnt")?;
        let report = guest.run_within("/mnt/virtfleet-agent report", AGENT_TIMEOUT)?;
        let seen: Value = serde_json::from_str(&report)?;
        let hardware = &seen["sections"]["hardware"];
        ensure!(hardware["status"] == "ok", "{hardware:#}");
        ensure!(hardware["items"][0]["tpm"] == false, "{hardware:#}");
        ensure!(hardware["items"][0]["crashKernelBytes"] == 0, "{hardware:#}");

        let devices = json!({
            "disks": [{ "name": "data", "serial": "data", "disk": { "bus": "virtio" } }],
            "interfaces": [{ "name": "default", "masquerade": {}, "macAddress": "02:00:00:00:00:01" }],
            "rng": {}, "autoattachMemBalloon": true,
        });
        let same = json!({
            "cpu": { "sockets": 2, "maxSockets": 4 }, "memory": { "guest": "1Gi" }, "devices": devices,
        });
        let detail = collected(&same, &report)?;
        let agrees = paths(&detail, SpecResult::Agrees);
        for path in [
            "spec.domain.cpu",
            "spec.domain.cpu.{sockets,cores,threads}",
            "spec.domain.memory.guest",
            "spec.domain.devices.disks[data].serial",
            "spec.domain.devices.disks[data].disk.bus",
            "spec.domain.devices.interfaces",
            "spec.domain.devices.interfaces[default].model",
            "spec.domain.devices.rng",
            "spec.domain.devices.autoattachMemBalloon",
        ] {
            ensure!(agrees.contains(&path), "{path}: {:#?}", detail.spec);
        }

        let devices = json!({
            "disks": [{ "name": "lost", "serial": "lost", "disk": { "bus": "virtio" } }],
            "interfaces": [{ "name": "default", "masquerade": {}, "model": "e1000", "macAddress": "02:00:00:00:00:01" }],
            "tpm": {},
        });
        let more = json!({
            "cpu": { "sockets": 4, "model": "host-passthrough" }, "memory": { "guest": "1280Mi" }, "devices": devices,
        });
        let detail = collected(&more, &report)?;
        let differs = paths(&detail, SpecResult::Differs);
        for path in [
            "spec.domain.cpu",
            "spec.domain.memory.guest",
            "spec.domain.devices.interfaces[default].model",
            "spec.domain.devices.tpm",
        ] {
            ensure!(differs.contains(&path), "{path}: {:#?}", detail.spec);
        }
        assert_eq!(condition(&detail), (HealthConditionStatus::False, "FewerVcpus"));

        // Without the disks, which the stage has more of, and with its host name.
        let plain = json!({ "cpu": { "sockets": 2 }, "memory": { "guest": "1Gi" } });
        let mut named: Value = serde_json::from_str(&report)?;
        named["identity"]["hostname"] = json!({ "value": "stage", "source": "test" });
        let detail = collected(&plain, &named.to_string())?;
        assert_eq!(condition(&detail), (HealthConditionStatus::True, "SpecInEffect"));
        Ok(())
    });
}
