//! `virtfleet-agent doctor`: checks everything that an admin would check by hand. Each line names
//! the next command.
//!
//! ```text
//! collect (effects: files, ports, collectors) ─▶ Seen ─ checks (pure) ─▶ CheckResult…
//!      ─▶ text | JSON | YAML, exit code
//! ```

mod checks;
mod collect;
mod disks;
mod dns;
mod enrolment;
mod passes;
mod virtio;
mod way;

use virtfleet_agent_core::{
    disks::state::DisksState, dns::state::DnsState, enrolment::status::EnrolmentStatus, pass::GuestRecord,
    push::record::WayRecord,
};
use virtfleet_agent_host::Port;
use virtfleet_agent_state::{settings::LoadedSettings, virtio::Virtio};
use virtfleet_wire::{finding::Finding, identity::Missing, report::Clock};

pub use checks::check;
pub use collect::{Agree, Inspect, collect};

pub use virtfleet_runtime::{
    checks::{CheckResult, CheckStatus, any_failed, text},
    tls::Validity,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemFile {
    /// Its key in the settings, e.g. `certificate`.
    pub key: &'static str,
    pub path: String,
    /// Its content: a validity for certificates, none for a key; or why it cannot be used.
    pub content: Result<Option<Validity>, String>,
}

/// A listener, and the result of a trial bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSeen {
    pub name: String,
    pub address: String,
    /// Result of the trial bind.
    pub port: Port,
    /// A process of root listens on its port.
    pub held_by_root: bool,
}

/// Result of one collector, run once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorRun {
    pub name: String,
    /// Number of its samples, or why it failed.
    pub result: Result<usize, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSeen {
    /// Its age, in milliseconds.
    pub age_ms: u64,
    /// True if it was written in this boot.
    pub this_boot: bool,
}

/// Input of the checks.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The settings as `run` would load them.
    pub settings: LoadedSettings,
    /// TLS files that the settings name.
    pub pem: Vec<PemFile>,
    /// Why the TLS files cannot be used together, although each is valid: for example a key of
    /// another certificate.
    pub tls: Option<String>,
    /// State of the enrolment, or why it is unknown. The outer option is none if the settings do
    /// not ask for it, the inner one if no agent has started with it yet.
    pub enrolment: Option<Result<Option<EnrolmentStatus>, String>>,
    /// How collectors reach the running agent, or why that is unknown. None if no agent runs.
    pub way: Option<Result<WayRecord, String>>,
    pub listeners: Vec<ListenerSeen>,
    /// The process id of a running agent.
    pub agent_pid: Option<u32>,
    /// `--path.*` flag, path, and why the path cannot be read.
    pub roots: Vec<(&'static str, String, Result<(), String>)>,
    /// Fields that the identity lacks.
    pub missing: Vec<Missing>,
    /// SMBIOS vendor.
    pub vendor: Option<String>,
    /// The boot id; empty when unknown.
    pub boot_id: String,
    /// The state file, or why it cannot be read.
    pub state: Result<StateSeen, String>,
    /// Results of root's reconcile runs in this boot, or why they are unknown.
    pub passes: Result<GuestRecord, String>,
    /// State of the declared disks, or why it is unknown.
    pub disks: Result<DisksState, String>,
    /// Disks with equal UUIDs or labels.
    pub duplicates: Vec<Finding>,
    /// State of DNS, or why it is unknown.
    pub dns: Result<DnsState, String>,
    /// The virtio devices, with their findings.
    pub virtio: Virtio,
    /// Installed services that must wait for provisioning, and whether they do.
    pub drop_ins: Vec<(&'static str, bool)>,
    pub clock: Clock,
    /// Results of every enabled collector.
    pub collectors: Vec<CollectorRun>,
}

#[cfg(test)]
mod tests;
