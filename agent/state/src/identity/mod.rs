//! Identity of this guest and its claims about its topology, read from files. Each value names its
//! source; each missing one names the files that were tried and the reasons.
//!
//! This module only reads, and no content of a file makes it fail or panic.
//!
//! ```text
//! /sys/class/dmi, cloud-init's files, /etc, /proc ─ agent_core::identity ─▶ Identity, with missing
//! kubelet's command line or unit, downwardMetrics, asset tag ──────────────▶ Claims
//! ```

mod cloud;
mod dmi;
mod downward;
mod field_reader;
mod identity_state;
mod interfaces;
mod kubelet;
pub mod state;

use virtfleet_agent_core::identity::{cloud::plain, dmi::vm_of_asset_tag};
use virtfleet_agent_host::Roots;
use virtfleet_wire::identity::{Claims, Identity, Missing};

use field_reader::{FieldReader, GuestFile};

/// Result of an observation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// Identity of the guest. `missing` lists the unavailable fields, those of the claims too
    /// (`claims.infraNode`).
    pub identity: Identity,
    /// Claims about its topology.
    pub claims: Claims,
    /// `/proc/sys/kernel/random/boot_id`; empty if it cannot be read.
    pub boot_id: String,
}

/// Observes the identity repeatedly and caches kubelet's PID, which is expensive to find.
#[derive(Debug, Default)]
pub struct Observer {
    kubelet: kubelet::Finder,
}

/// Observes the identity once.
pub fn observe(roots: &Roots) -> Observed {
    Observer::default().observe(roots, 0)
}

impl Observer {
    /// Observes the identity. `boottime_ns` is `CLOCK_BOOTTIME`; it limits how often kubelet is
    /// searched.
    pub fn observe(&mut self, roots: &Roots, boottime_ns: u64) -> Observed {
        observe_with(roots, true, Some((&mut self.kubelet, boottime_ns)))
    }
}

/// The identity as this process can read it, without the state file. Root writes this to the state
/// file.
fn observe_bare(roots: &Roots) -> Observed {
    observe_with(roots, false, None)
}

fn observe_with(roots: &Roots, use_state: bool, finder: Option<(&mut kubelet::Finder, u64)>) -> Observed {
    let mut reader = FieldReader::new(roots);
    let boot_id = reader
        .value("bootId", &[GuestFile::Proc("sys/kernel/random/boot_id")], plain)
        .map_or_else(String::new, |sourced| sourced.value);
    let mut identity = Identity::default();
    dmi::fill(&mut identity, &mut reader, use_state.then_some(boot_id.as_str()));
    cloud::fill(&mut identity, &mut reader);
    identity.machine_id = reader.value("machineId", &[GuestFile::Root("/etc/machine-id")], machine_id);
    identity.hostname = reader.value("hostname", &[GuestFile::Proc("sys/kernel/hostname")], plain);
    identity.interfaces = interfaces::read(&mut reader);

    let mut claims = Claims::default();
    if let Some((finder, boottime_ns)) = finder {
        kubelet::fill(&mut claims, &reader, finder, boottime_ns);
    }
    downward::fill(&mut claims, &mut reader);
    claims.vm = identity
        .asset_tag
        .clone()
        .filter(|tag| vm_of_asset_tag(&tag.value).is_some());

    identity.missing = reader.missing;
    identity.missing.sort();
    Observed {
        identity,
        claims,
        boot_id,
    }
}

/// 32 hexadecimal digits (machine-id(5)). `uninitialized` and an empty file, as in images, mean
/// that there is no machine id yet.
fn machine_id(text: &str) -> Option<String> {
    let text = text.trim();
    let good =
        text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()) && text.bytes().any(|b| b != b'0');
    good.then(|| text.to_ascii_lowercase())
}

/// True for a field whose absence makes guests hard to distinguish; its absence is a finding.
pub fn is_important(missing: &Missing) -> bool {
    ["smbiosUuid", "machineId", "hostname", "bootId", "interfaces"].contains(&missing.field.as_str())
}

#[cfg(test)]
mod tests;
