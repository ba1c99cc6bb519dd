//! `virtfleet-agent doctor`: everything that a person would check by hand, each line with the next command to type.
//!
//! ```text
//! look (effects: files, ports, collectors) ─▶ Seen ─ checks (pure) ─▶ CheckResult… ─▶ text | JSON | YAML, exit code
//! ```

mod checks;
mod disks;
mod dns;
mod look;
mod passes;
mod virtio;

use virtfleet_agent_core::{disks::state::DisksState, dns::state::DnsState, pass::GuestRecord};
use virtfleet_agent_host::Port;
use virtfleet_agent_state::{settings::LoadedSettings, virtio::Virtio};
use virtfleet_wire::{finding::Finding, identity::Missing, report::Clock};

pub use checks::check;
pub use look::{Agree, Inspect, look};

pub use virtfleet_runtime::{
    checks::{CheckResult, CheckStatus, any_failed, text},
    tls::Validity,
};

/// One of the TLS files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemFile {
    /// Its key in the settings, e.g. `certificate`.
    pub key: &'static str,
    /// Its path.
    pub path: String,
    /// What is in it: a validity for certificates, none for a key; or why it cannot be used.
    pub content: Result<Option<Validity>, String>,
}

/// A listener and what trying to listen there came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSeen {
    /// Its name in the settings.
    pub name: String,
    /// Its address.
    pub address: String,
    /// What came of it.
    pub port: Port,
}

/// One collector, run once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorRun {
    /// Its name.
    pub name: String,
    /// How many samples it gave, or why it failed.
    pub result: Result<usize, String>,
}

/// The state file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSeen {
    /// How long ago it was written, in milliseconds.
    pub age_ms: u64,
    /// Whether it was written in this boot.
    pub this_boot: bool,
}

/// All that the checks look at.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The settings as `run` would load them.
    pub settings: LoadedSettings,
    /// TLS files that the settings name.
    pub pem: Vec<PemFile>,
    /// Why the TLS files cannot serve together, each by itself being good, e.g. a key of another certificate.
    pub tls: Option<String>,
    /// Listeners of the settings.
    pub listeners: Vec<ListenerSeen>,
    /// The process id of a running agent.
    pub agent_pid: Option<u32>,
    /// `--path.*` flag, path, and why it cannot be read.
    pub roots: Vec<(&'static str, String, Result<(), String>)>,
    /// What the identity lacks.
    pub missing: Vec<Missing>,
    /// SMBIOS vendor.
    pub vendor: Option<String>,
    /// The boot id; empty when unknown.
    pub boot_id: String,
    /// The state file, or why it cannot be read.
    pub state: Result<StateSeen, String>,
    /// What came of root's passes in this boot, or why that is not known.
    pub passes: Result<GuestRecord, String>,
    /// How the declared disks stand, or why that is not known.
    pub disks: Result<DisksState, String>,
    /// Disks with equal UUIDs or labels.
    pub duplicates: Vec<Finding>,
    /// How DNS stands, or why that is not known.
    pub dns: Result<DnsState, String>,
    /// The virtio devices, and what is to be said of them.
    pub virtio: Virtio,
    /// Services that should wait for provisioning, as far as they are there, and whether they do.
    pub drop_ins: Vec<(&'static str, bool)>,
    /// The clocks.
    pub clock: Clock,
    /// Every collector that is on.
    pub collectors: Vec<CollectorRun>,
}

#[cfg(test)]
mod tests;
