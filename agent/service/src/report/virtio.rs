//! `virtio`: the machine, its virtio devices and its disks' queues. Those of interfaces are in
//! `nics`.

use serde_json::{Value, json};
use virtfleet_agent_core::virtio::{Device, Disk, Machine, ranges};
use virtfleet_agent_state::virtio::Virtio;
use virtfleet_wire::report::{Section, SectionStatus};

use super::files::object;

/// Maximum number of devices, and of disks, in the report.
const MAX_ITEMS: usize = 128;
/// Maximum number of names per device.
const MAX_PARTS: usize = 8;

pub(super) fn section(seen: &Virtio) -> Section {
    let machine = &seen.machine;
    let devices = machine.devices.iter().take(MAX_ITEMS).map(device);
    let disks = machine.disks.iter().take(MAX_ITEMS).map(disk);
    let whole = std::iter::once(whole(machine, seen));
    Section {
        status: if machine.unread.is_empty() && seen.unusable.is_none() {
            SectionStatus::Ok
        } else {
            SectionStatus::Partial
        },
        items: whole.chain(devices).chain(disks).collect(),
        truncated: machine.devices.len() > MAX_ITEMS || machine.disks.len() > MAX_ITEMS,
        ..Section::default()
    }
}

fn whole(machine: &Machine, seen: &Virtio) -> Value {
    let unread = machine.unread.len();
    let first = machine.unread.first();
    object([
        ("kind", Some("machine".into())),
        ("cpusOnline", Some(ranges(&machine.cpus.online).into())),
        ("cpusPresent", Some(ranges(&machine.cpus.present).into())),
        ("cpusPossible", Some(ranges(&machine.cpus.possible).into())),
        ("vectorsUsed", Some(machine.vectors.used.into())),
        ("vectorsLimit", machine.vectors.limit.map(Into::into)),
        ("unread", (unread > 0).then(|| unread.into())),
        (
            "unreadFirst",
            first.map(|one| format!("{}: {}", one.what, one.because).into()),
        ),
        ("queuesPass", queues_pass(seen)),
    ])
}

/// Result of root's last reconcile run.
fn queues_pass(seen: &Virtio) -> Option<Value> {
    if let Some(reason) = &seen.unusable {
        return Some(json!({"error": reason}));
    }
    let state = seen.state.as_ref()?;
    Some(object([
        ("multiqueue", serde_json::to_value(state.multiqueue).ok()),
        ("atBoottimeMs", Some((state.at_boottime_ns / 1_000_000).into())),
        ("changes", Some(state.changes.into())),
        ("rollbacks", Some(state.rollbacks.into())),
        ("refusals", Some(state.refusals.len().into())),
        ("error", state.error.clone().map(Into::into)),
    ]))
}

fn device(device: &Device) -> Value {
    let interrupts = device
        .vectors
        .iter()
        .fold(0u64, |sum, one| sum.saturating_add(one.count()));
    let parts: Vec<&String> = device.parts.iter().take(MAX_PARTS).collect();
    object([
        ("kind", Some("device".into())),
        ("name", Some(device.name.clone().into())),
        ("type", Some(device.kind.to_string().into())),
        ("driver", device.driver.clone().map(Into::into)),
        ("bus", serde_json::to_value(device.bus).ok()),
        ("address", Some(device.address.clone().into())),
        ("state", Some(state(device).into())),
        ("parts", (!parts.is_empty()).then(|| json!(parts))),
        ("queues", Some(device.queues.len().into())),
        ("vectors", Some(device.vectors.len().into())),
        ("sharing", serde_json::to_value(device.sharing).ok()),
        ("interrupts", Some(interrupts.into())),
        ("negotiated", Some(device.negotiated.to_string().into())),
        (
            "offered",
            device.offered.map(|offered| offered.to_string().into()),
        ),
    ])
}

/// State of a device, in one word.
pub fn state(device: &Device) -> &'static str {
    if device.needs_reset() {
        "needs-reset"
    } else if device.failed() {
        "failed"
    } else if device.driver.is_none() {
        "no-driver"
    } else if device.status.is_none() {
        "unknown"
    } else {
        "ok"
    }
}

fn disk(disk: &Disk) -> Value {
    let depth = disk.queues.first().and_then(|queue| queue.depth);
    object([
        ("kind", Some("disk".into())),
        ("name", Some(disk.name.clone().into())),
        ("device", disk.device.clone().map(Into::into)),
        ("behind", serde_json::to_value(disk.kind).ok()),
        ("queues", Some(disk.queues.len().into())),
        ("depth", depth.map(Into::into)),
        ("requests", disk.requests.map(Into::into)),
        ("scheduler", disk.scheduler.clone().map(Into::into)),
        (
            "writeCache",
            disk.write_cache
                .and_then(|cache| serde_json::to_value(cache).ok()),
        ),
        ("discardBytes", disk.discard.map(Into::into)),
    ])
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_state::virtio::sample;
    use virtfleet_wire::settings::NicSettings;

    use super::*;

    #[test]
    fn devices_and_disks_are_summarised() {
        let settings = NicSettings::default();
        let seen = Virtio::of(sample::machine(), Some(sample::state()), None, &settings);
        let section = section(&seen);
        assert_eq!(
            section.status,
            SectionStatus::Partial,
            "something could not be read"
        );
        insta::assert_snapshot!("virtio", serde_json::to_string_pretty(&section.items).unwrap());
    }

    #[test]
    fn a_large_machine_is_cut() {
        let settings = NicSettings::default();
        let seen = Virtio::of(sample::large(200, 8), None, None, &settings);
        let section = section(&seen);
        assert!(section.truncated);
        assert_eq!(section.items.len(), 1 + MAX_ITEMS + 1);
        let bytes = serde_json::to_string(&section.items).unwrap().len();
        assert!(bytes < 64 * 1024, "{bytes}");
    }
}
