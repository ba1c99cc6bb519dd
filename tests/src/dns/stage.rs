//! One pass over a guest's DNS, as `dns-stage` does it in the guest.

use std::{process::Output, time::Duration};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::DnsSettings;

use super::Guest;
use crate::process::Launch;

const PASS: Duration = Duration::from_mins(2);

/// What is to be done.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Order {
    /// What is asked for.
    pub dns: DnsSettings,
    /// Only what the next boot does first: undo what a crash has left half done.
    pub recover_only: bool,
    /// SIGKILL at this point between two effects, from 1.
    pub kill_at: Option<usize>,
    /// What somebody else does at a point.
    pub plays: Option<Plays>,
    /// Services take up what is written and may configure links anew: wait for them as long as the agent does.
    pub services: bool,
}

/// A shell script at the first point that begins so.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Plays {
    /// How the point begins, e.g. `after write /etc/resolv.conf`.
    pub at: String,
    /// The script, which runs in the guest.
    pub script: String,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Outcome {
    /// It was killed.
    pub killed: bool,
    /// The points that were passed.
    pub points: Vec<String>,
    /// How many steps the plan had.
    pub steps: usize,
    /// Why nothing was done, by kind.
    pub refusals: Vec<String>,
    /// What was undone of an earlier pass, in words.
    pub recovered: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Outcome {
    /// What `dns-stage` has left.
    pub fn of(output: &Output) -> Result<Self> {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // nsenter ends itself by the signal that ended what it has started.
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
    /// Runs a pass. The guest has `dns-stage` in `/opt`.
    pub fn stage(&self, order: &Order) -> Result<Outcome> {
        stage(self.launch("/opt/dns-stage"), order)
    }
}

/// The same by a program that enters a guest to start it.
pub(crate) fn stage(program: Launch, order: &Order) -> Result<Outcome> {
    Outcome::of(&program.arg(serde_json::to_string(order)?).output(PASS)?)
}
