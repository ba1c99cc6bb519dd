//! Reads what a VMI asks for: CPUs, memory, devices, DNS.
//!
//! An invalid value counts as absent: the API server has validated it, so it is of a newer version,
//! and must not hide the VM.

use virtfleet_collector_core::vmi_spec::{
    CpuFeatureSpec, CpuSpec, CpuTopology, DiskSpec, DnsSpec, InterfaceSpec, MAX_SPEC_DISKS, MAX_SPEC_DNS,
    MAX_SPEC_FEATURES, MAX_SPEC_INTERFACES, MAX_SPEC_TEXT_CHARS, MemorySpec, VmiSpec,
};

use super::{capacity::quantity, field::Field};
use crate::bounded::bounded;

/// Maximum number of entries of `status.volumeStatus` that are searched for one disk.
const MAX_VOLUME_STATUSES: usize = 256;
/// Bindings of an interface whose device is emulated and has a tap device behind it.
const TAP_BINDINGS: [&str; 2] = ["bridge", "masquerade"];

/// What the VMI asks for; none without `spec.domain`.
pub(super) fn vmi_spec(object: &Field<'_>) -> Option<VmiSpec> {
    let domain = at(object, "spec.domain")?;
    let status = at(object, "status");
    let listed = items(&domain, "devices.disks");
    let volumes = status.as_ref().map(|status| items(status, "volumeStatus"));
    let volumes = volumes.unwrap_or_default();
    let disks = listed.iter().take(MAX_SPEC_DISKS);
    let links = items(&domain, "devices.interfaces");
    let has_state = |one: &Field<'_>, state| text(one, "state").as_deref() == Some(state);
    let mut plugged = links.iter().filter(|one| !has_state(one, "absent")).peekable();
    let has_links_down = plugged.peek().is_some() && plugged.all(|one| has_state(one, "down"));
    let interfaces = links.iter().take(MAX_SPEC_INTERFACES);
    let tpm = at(&domain, "devices.tpm");
    Some(VmiSpec {
        cpu: cpu(&domain, status.as_ref()),
        memory: memory(&domain, status.as_ref()),
        huge_page_size: text(&domain, "memory.hugepages.pageSize"),
        disks: disks.filter_map(|one| disk(one, &volumes)).collect(),
        has_more_disks: listed.len() > MAX_SPEC_DISKS,
        interfaces: interfaces.filter_map(interface).collect(),
        block_multi_queue: flag(&domain, "devices.blockMultiQueue") == Some(true),
        network_multi_queue: flag(&domain, "devices.networkInterfaceMultiqueue") == Some(true),
        io_threads_policy: text(&domain, "ioThreadsPolicy"),
        rng: at(&domain, "devices.rng").is_some(),
        tpm: tpm.is_some_and(|tpm| flag(&tpm, "enabled") != Some(false)),
        pings_guest: at(object, "spec.readinessProbe.guestAgentPing").is_some(),
        has_links_down,
        balloon: flag(&domain, "devices.autoattachMemBalloon"),
        dns: dns(object).map(Box::new),
    })
}

/// `pkg/virt-launcher/virtwrap/converter/vcpu`: `spec.domain.cpu`, else the limit, else the
/// request, as sockets.
fn cpu(domain: &Field<'_>, status: Option<&Field<'_>>) -> CpuSpec {
    let field = at(domain, "cpu");
    let part = |field: &Field<'_>, name: &str| count(field, name).filter(|count| *count > 0);
    let topology_of = |field: &Field<'_>| {
        let [sockets, cores, threads] = ["sockets", "cores", "threads"].map(|name| part(field, name));
        (sockets.or(cores).or(threads)).map(|_| CpuTopology {
            sockets: sockets.unwrap_or(1),
            cores: cores.unwrap_or(1),
            threads: threads.unwrap_or(1),
        })
    };
    let of_resources = |name: &str| {
        let milli = at(domain, name).and_then(|field| quantity(&field).ok()?)?;
        let sockets = u32::try_from(milli.div_ceil(1000))
            .ok()
            .filter(|count| *count > 0)?;
        Some(CpuTopology {
            sockets,
            cores: 1,
            threads: 1,
        })
    };
    let named = |topology: Option<CpuTopology>, field| topology.map(|topology| (topology, field));
    let topology = named(field.as_ref().and_then(topology_of), "spec.domain.cpu")
        .or_else(|| {
            named(
                of_resources("resources.limits.cpu"),
                "spec.domain.resources.limits.cpu",
            )
        })
        .or_else(|| {
            named(
                of_resources("resources.requests.cpu"),
                "spec.domain.resources.requests.cpu",
            )
        });
    let current = status.and_then(|status| topology_of(&at(status, "currentCPUTopology")?));
    let Some(field) = field else {
        return CpuSpec {
            topology,
            current_vcpus: current.map(CpuTopology::vcpus),
            ..CpuSpec::default()
        };
    };
    let features = items(&field, "features");
    let features = features.iter().take(MAX_SPEC_FEATURES);
    CpuSpec {
        topology,
        max_sockets: part(&field, "maxSockets"),
        model: text(&field, "model"),
        features: features.filter_map(feature).collect(),
        is_dedicated: flag(&field, "dedicatedCpuPlacement") == Some(true),
        isolates_emulator: flag(&field, "isolateEmulatorThread") == Some(true),
        current_vcpus: current.map(CpuTopology::vcpus),
    }
}

fn feature(field: &Field<'_>) -> Option<CpuFeatureSpec> {
    Some(CpuFeatureSpec {
        name: text(field, "name")?,
        wanted: match text(field, "policy").as_deref() {
            None | Some("require" | "force") => Some(true),
            Some("disable" | "forbid") => Some(false),
            Some(_) => None,
        },
    })
}

/// `GetVirtualMemory` of KubeVirt: `memory.guest`, else the request, else the limit.
fn memory(domain: &Field<'_>, status: Option<&Field<'_>>) -> Option<MemorySpec> {
    let bytes = |field: &Field<'_>, name: &str| Some(quantity(&at(field, name)?).ok()?? / 1000);
    let sources = [
        ("memory.guest", "spec.domain.memory.guest"),
        (
            "resources.requests.memory",
            "spec.domain.resources.requests.memory",
        ),
        ("resources.limits.memory", "spec.domain.resources.limits.memory"),
    ];
    let found = sources
        .into_iter()
        .find_map(|(name, field)| Some((bytes(domain, name)?, field)));
    found.map(|(found, field)| MemorySpec {
        bytes: found,
        field,
        current_bytes: status.and_then(|status| bytes(status, "memory.guestCurrent")),
    })
}

fn disk(field: &Field<'_>, volumes: &[Field<'_>]) -> Option<DiskSpec> {
    let name = text(field, "name")?;
    let target = ["disk", "lun", "cdrom"]
        .into_iter()
        .find_map(|kind| Some((kind, at(field, kind)?)));
    let bus = target.as_ref().and_then(|(_, target)| text(target, "bus"));
    let volumes = volumes.iter().take(MAX_VOLUME_STATUSES);
    let volume = volumes
        .into_iter()
        .find(|volume| text(volume, "name").as_deref() == Some(&*name));
    let hot_plugged = volume.filter(|volume| at(volume, "hotplugVolume").is_some());
    let phase = hot_plugged.and_then(|volume| text(volume, "phase"));
    Some(DiskSpec {
        serial: text(field, "serial"),
        bus: bus.and_then(|bus| bus.parse().ok()),
        is_cdrom: target.is_some_and(|(kind, _)| kind == "cdrom"),
        cache: text(field, "cache"),
        io: text(field, "io"),
        has_io_thread: flag(field, "dedicatedIOThread") == Some(true),
        bytes: volume.and_then(|volume| u64::try_from(whole(volume, "size")?).ok()),
        is_pending: phase.is_some_and(|phase| &*phase != "Ready"),
        name,
    })
}

fn interface(field: &Field<'_>) -> Option<InterfaceSpec> {
    if text(field, "state").as_deref() == Some("absent") {
        return None;
    }
    let mac = text(field, "macAddress");
    Some(InterfaceSpec {
        name: text(field, "name")?,
        model: text(field, "model"),
        mac: mac.and_then(|mac| mac.parse().ok()),
        is_tap: TAP_BINDINGS.iter().any(|binding| at(field, binding).is_some()),
    })
}

fn dns(object: &Field<'_>) -> Option<DnsSpec> {
    let policy = at(object, "spec").and_then(|spec| text(&spec, "dnsPolicy"));
    let config = at(object, "spec.dnsConfig");
    if policy.is_none() && config.is_none() {
        return None;
    }
    let listed = |name: &str| {
        config
            .as_ref()
            .map(|config| items(config, name))
            .unwrap_or_default()
    };
    let texts = |name: &str| -> Box<[Box<str>]> {
        let listed = listed(name);
        let listed = listed.iter().take(MAX_SPEC_DNS);
        listed.filter_map(|one| Some(cut(one.text().ok()??))).collect()
    };
    let option = |field: &Field<'_>| {
        let name = text(field, "name")?;
        Some(match text(field, "value") {
            Some(value) => format!("{name}:{value}").into(),
            None => name,
        })
    };
    let options = listed("options");
    Some(DnsSpec {
        policy,
        nameservers: texts("nameservers")
            .iter()
            .filter_map(|one| one.parse().ok())
            .collect(),
        searches: texts("searches"),
        options: options.iter().take(MAX_SPEC_DNS).filter_map(option).collect(),
    })
}

fn at<'a>(field: &Field<'a>, path: &str) -> Option<Field<'a>> {
    field.at(path).ok().filter(Field::is_there)
}

fn text(field: &Field<'_>, path: &str) -> Option<Box<str>> {
    Some(cut(at(field, path)?.text().ok()??))
}

fn cut(text: &str) -> Box<str> {
    bounded(text, MAX_SPEC_TEXT_CHARS).into()
}

fn flag(field: &Field<'_>, path: &str) -> Option<bool> {
    at(field, path)?.flag().ok()
}

fn whole(field: &Field<'_>, path: &str) -> Option<i64> {
    at(field, path)?.whole().ok()?
}

fn count(field: &Field<'_>, path: &str) -> Option<u32> {
    u32::try_from(whole(field, path)?).ok()
}

fn items<'a>(field: &Field<'a>, path: &str) -> Vec<Field<'a>> {
    let listed = at(field, path).and_then(|field| field.items().ok());
    listed.unwrap_or_default()
}

#[cfg(test)]
#[path = "vmi_spec_tests.rs"]
mod tests;
