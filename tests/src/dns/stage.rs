//! One DNS reconcile run by `dns-stage` in a guest.

use std::{process::Output, time::Duration};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::DnsSettings;

use super::Guest;
use crate::process::Launch;

const PASS: Duration = Duration::from_mins(2);

/// Input of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Order {
    /// The requested settings.
    pub dns: DnsSettings,
    /// Only do the first step of the next boot: undo what a crash has left half done.
    pub recover_only: bool,
    /// Kill the run with SIGKILL at this point between two effects, counted from 1.
    pub kill_at: Option<usize>,
    /// A change by other software at a point.
    pub plays: Option<Plays>,
    /// Services apply what is written and may reconfigure links: wait for them as long as the agent
    /// does.
    pub services: bool,
}

/// A shell script to run at the first point with this prefix.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Plays {
    /// Prefix of the point, e.g. `after write /etc/resolv.conf`.
    pub at: String,
    /// The script; it runs in the guest.
    pub script: String,
}

/// Result of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Outcome {
    /// The run was killed.
    pub killed: bool,
    /// The points that the run reached.
    pub points: Vec<String>,
    /// Number of steps in the plan.
    pub steps: usize,
    /// Reasons why the run refused to change anything, by kind.
    pub refusals: Vec<String>,
    /// Description of what was undone of an earlier run.
    pub recovered: Option<String>,
    /// The error, if it failed.
    pub error: Option<String>,
}

impl Outcome {
    /// Parses the output of `dns-stage`.
    pub fn of(output: &Output) -> Result<Self> {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // nsenter ends itself with the signal that ended its child.
        if output.status.code().is_none() {
            return Ok(Outcome {
                killed: true,
                points: text.lines().map(str::to_owned).collect(),
                ..Outcome::default()
            });
        }
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).with_context(|| {
            format!(
                "{}: {text}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )
        })
    }
}

impl Guest {
    /// Makes one run. The guest must have `dns-stage` in `/opt`.
    pub fn stage(&self, order: &Order) -> Result<Outcome> {
        stage(self.launch("/opt/dns-stage"), order)
    }
}

/// As [`Guest::stage`], with a program that enters a guest first.
pub(crate) fn stage(program: Launch, order: &Order) -> Result<Outcome> {
    Outcome::of(&program.arg(serde_json::to_string(order)?).output(PASS)?)
}
