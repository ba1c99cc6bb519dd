//! What the command line asks for.

use std::{path::PathBuf, time::Duration};

use virtfleet_agent_core::pass::Stage;
use virtfleet_agent_host::Roots;
use virtfleet_wire::settings::{LogFormat, LogLevel};

use super::collector_flags::CollectorFlags;
use crate::{install::Options, output::Output};

/// A parsed command line.
#[derive(Debug, Clone)]
pub struct Args {
    /// The guest's trees.
    pub roots: Roots,
    /// `--config`: this file instead of the usual places.
    pub config: Option<PathBuf>,
    /// `--log.level`, over the settings.
    pub log_level: Option<LogLevel>,
    /// `--log.format`, over the settings.
    pub log_format: Option<LogFormat>,
    /// Flags of collectors.
    pub collectors: CollectorFlags,
    /// What to do.
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Serve.
    Run,
    /// One scrape on standard output.
    Metrics,
    /// The report on standard output.
    Report(Output),
    /// Everything that a person would check by hand.
    Doctor(Output),
    /// Validate this file, or the usual ones.
    CheckConfig(Option<PathBuf>, Output),
    /// The settings' JSON Schema.
    Schema,
    /// Root: write what only root may read where `run` can read it.
    State,
    /// Root: put this binary, its units and what they need into this guest or an image, or (`true`) take it out again.
    Install(Options, bool, Output),
    /// Root: run the steps of this stage, or of all of them, one after the other; how long another pass is waited for.
    Apply(Option<Stage>, Output, Option<Duration>),
    /// Root: apply the plan of one domain.
    ApplyDomain(ApplyOptions),
    /// Root: what would be done; `true`: tell it by the exit code, too.
    Plan(Subjects, Output, bool),
    /// How the guest's DNS stands.
    Dns(Output),
    /// The virtio devices; `true`: each queue, however many.
    Virtio(bool, Output),
    /// The declared disks.
    Disks(DisksVerb),
}

impl Verb {
    /// Whether it reads disks themselves, which may never answer.
    pub(super) fn reads_disks(&self) -> bool {
        match self {
            Self::Apply(..) | Self::Plan(..) | Self::Disks(DisksVerb::Approve(..)) => true,
            Self::ApplyDomain(options) => options.domain == Domain::Disks,
            _ => false,
        }
    }
}

/// The domains that `plan` plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subjects {
    /// The declared disks.
    pub disks: bool,
    /// The guest's DNS.
    pub dns: bool,
    /// Queues of network interfaces.
    pub nic: bool,
}

/// What the verb `disks` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisksVerb {
    /// How the declared disks stand.
    List(Output),
    /// Takes a person's word on a refusal: name or serial, evidence.
    Approve(String, String),
    /// The gate: whether the required disks are in place.
    Check,
    /// Gives unused blocks back, for the disks that ask for it.
    Trim,
}

/// What a run provisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// The declared disks.
    Disks,
    /// The guest's DNS.
    Dns,
    /// Queues of network interfaces.
    Nic,
}

impl Domain {
    /// All domains.
    pub const ALL: [Self; 3] = [Self::Disks, Self::Dns, Self::Nic];

    /// The name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Disks => "disks",
            Self::Dns => "dns",
            Self::Nic => "nic",
        }
    }
}

/// What the command line says of a run over one domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyOptions {
    /// What to provision.
    pub domain: Domain,
    /// The plan that the admin has read (`--plan`): the run changes nothing if the plan has changed.
    pub plan: Option<PathBuf>,
    /// How the state is printed.
    pub output: Output,
    /// How long another run is waited for; none: [`PATIENCE`].
    pub wait: Option<Duration>,
}
