//! Who this guest is and what it believes of its topology, read from its files. Each value says where it was read; each
//! absent one says where it was looked for and what came back.
//!
//! Reads only; nothing here fails or panics, whatever lies in the files.
//!
//! ```text
//! /sys/class/dmi, cloud-init's files, /etc, /proc ─ agent_core::identity ─▶ Identity, with missing
//! kubelet's command line or unit, downwardMetrics, asset tag ──────────────▶ Claims
//! ```

mod cloud;
mod dmi;
mod downward;
mod interfaces;
mod kubelet;
mod look;
pub mod state;

use virtfleet_agent_core::identity::{cloud::plain, dmi::vm_of_asset_tag};
use virtfleet_agent_host::Roots;
use virtfleet_wire::identity::{Claims, Identity, Missing};

use look::{At, Look};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// Who the guest is; `missing` names what could not be had, of the claims too (`claims.infraNode`).
    pub identity: Identity,
    /// What it believes of its topology.
    pub claims: Claims,
    /// `/proc/sys/kernel/random/boot_id`; empty when it could not be read.
    pub boot_id: String,
}

/// Observes again and again, and remembers what is dear to find: kubelet's process.
#[derive(Debug, Default)]
pub struct Observer {
    kubelet: kubelet::Finder,
}

/// Observes once.
pub fn observe(roots: &Roots) -> Observed {
    Observer::default().observe(roots, 0)
}

impl Observer {
    /// Observes. `boottime_ns` is `CLOCK_BOOTTIME`; by it a fruitless search for kubelet is not repeated at once.
    pub fn observe(&mut self, roots: &Roots, boottime_ns: u64) -> Observed {
        observe_with(roots, true, Some((&mut self.kubelet, boottime_ns)))
    }
}

/// The identity as this process can read it, without the state file: what root writes there.
fn observe_bare(roots: &Roots) -> Observed {
    observe_with(roots, false, None)
}

fn observe_with(roots: &Roots, use_state: bool, finder: Option<(&mut kubelet::Finder, u64)>) -> Observed {
    let mut look = Look::new(roots);
    let boot_id = look
        .value("bootId", &[At::Proc("sys/kernel/random/boot_id")], plain)
        .map_or_else(String::new, |sourced| sourced.value);
    let mut identity = Identity::default();
    dmi::fill(&mut identity, &mut look, use_state.then_some(boot_id.as_str()));
    cloud::fill(&mut identity, &mut look);
    identity.machine_id = look.value("machineId", &[At::Root("/etc/machine-id")], machine_id);
    identity.hostname = look.value("hostname", &[At::Proc("sys/kernel/hostname")], plain);
    identity.interfaces = interfaces::read(&mut look);

    let mut claims = Claims::default();
    if let Some((finder, boottime_ns)) = finder {
        kubelet::fill(&mut claims, &look, finder, boottime_ns);
    }
    downward::fill(&mut claims, &mut look);
    claims.vm = identity
        .asset_tag
        .clone()
        .filter(|tag| vm_of_asset_tag(&tag.value).is_some());

    identity.missing = look.missing;
    identity.missing.sort();
    Observed {
        identity,
        claims,
        boot_id,
    }
}

/// 32 hexadecimal digits (machine-id(5)); `uninitialized` and the empty file of an image mean that there is none yet.
fn machine_id(text: &str) -> Option<String> {
    let text = text.trim();
    let good =
        text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()) && text.bytes().any(|b| b != b'0');
    good.then(|| text.to_ascii_lowercase())
}

/// Whether a missing field is one without which a guest is hard to tell from another: worth a finding.
pub fn is_important(missing: &Missing) -> bool {
    ["smbiosUuid", "machineId", "hostname", "bootId", "interfaces"].contains(&missing.field.as_str())
}

#[cfg(test)]
mod tests;
