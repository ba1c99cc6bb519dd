//! The parsed command line.

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
    /// `--config`: this file instead of the default locations.
    pub config: Option<PathBuf>,
    /// `--log.level`, which overrides the settings.
    pub log_level: Option<LogLevel>,
    /// `--log.format`, which overrides the settings.
    pub log_format: Option<LogFormat>,
    pub collectors: CollectorFlags,
    pub verb: Verb,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Run the agent's server.
    Run,
    /// Print one scrape.
    Metrics,
    Report(Output),
    /// Check everything that an admin would check by hand.
    Doctor(Output),
    /// Validate this file, or those in the default locations.
    CheckConfig(Option<PathBuf>, Output),
    /// Print the settings' JSON Schema.
    Schema,
    /// Root: write the data that only root may read to where `run` can read it.
    State,
    /// Root: install this binary, its units and the files they need into this guest or an image, or
    /// (`true`) remove them.
    Install(Options, bool, Output),
    /// Root: run the steps of this stage, or of all stages in order. The duration is the maximum
    /// wait for another run.
    Apply(Option<Stage>, Output, Option<Duration>),
    /// Root: apply the plan of one domain.
    ApplyDomain(ApplyOptions),
    /// Root: show what would be done; `true`: with a detailed exit code.
    Plan(Subjects, Output, bool),
    /// Show the state of the guest's DNS.
    Dns(Output),
    /// Show the virtio devices; `true`: each queue, even if there are many.
    Virtio(bool, Output),
    /// Show or change the declared disks.
    Disks(DisksVerb),
}

impl Verb {
    /// True if the verb reads the disks themselves, which may never answer, and has to end anyway.
    ///
    /// `disks udev` reads one, too: udevd kills it when the timeout of the event is over (180 s).
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
    pub disks: bool,
    pub dns: bool,
    /// Queues of network interfaces.
    pub nic: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisksVerb {
    /// Show the state of the declared disks.
    List(Output),
    /// Approve a refusal: name or serial, evidence.
    Approve(String, String),
    /// The start gate: check whether the required disks are in place.
    Check,
    /// Discard unused blocks, for the disks whose settings request it.
    Trim,
    /// For udev: print the properties of this device if the agent's own filesystem is on it.
    Udev(PathBuf),
}

/// What a run provisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    Disks,
    Dns,
    /// Queues of network interfaces.
    Nic,
}

impl Domain {
    pub const VALUES: [Self; 3] = [Self::Disks, Self::Dns, Self::Nic];

    /// The name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Disks => "disks",
            Self::Dns => "dns",
            Self::Nic => "nic",
        }
    }
}

/// Options of a run over one domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyOptions {
    pub domain: Domain,
    /// The plan that the admin has read (`--plan`): the run changes nothing if the plan has
    /// changed.
    pub plan: Option<PathBuf>,
    /// The output format of the state.
    pub output: Output,
    /// Maximum wait for another run; none: [`ADMIN_LOCK_TIMEOUT`].
    pub wait: Option<Duration>,
}
