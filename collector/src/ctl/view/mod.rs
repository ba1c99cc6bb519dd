//! Formats responses as text: one module for each kind.

mod ca;
mod enrolment;
mod history;
mod hosts;
mod labels;
mod lists;
mod mla;
mod placement;
mod sheet;
mod spec;
mod status;
mod story;
mod tokens;
mod vm;
mod vms;
mod why;

pub(super) use ca::ca;
pub(super) use enrolment::{enrolment, enrolments};
pub(super) use history::history;
pub(super) use hosts::{host, top_hosts, top_vms};
pub(super) use labels::{label, label_changes, labels};
pub(super) use lists::{clusters, findings, hosts};
pub(super) use mla::{queues, queues_exit_code, streams, targets};
pub(super) use placement::{drain, drain_exit_code, placement, placement_exit_code};
pub(super) use status::{exit_code, status};
pub(super) use story::{events, migrations};
pub(super) use tokens::{created_token, token, tokens};
pub(super) use vm::{vm, vm_spec};
pub(super) use vms::vms;
pub(super) use why::why;

use virtfleet_collector_core::{
    health::HealthVerdict,
    view::{AgentStatus, VmState},
};
use virtfleet_wire::finding::Severity;

use super::table::{Table, Tone};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemOrder {
    OfApi,
    /// As `--sort-by` says.
    Requested,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ViewOptions {
    /// Show all columns.
    pub(super) wide: bool,
    /// Show the header line.
    pub(super) headers: bool,
    pub(super) order: ItemOrder,
    pub(super) colour: bool,
    /// Maximum characters of a cell.
    pub(super) max_chars: usize,
    /// Milliseconds since 1970.
    pub(super) now: u64,
}

impl ViewOptions {
    /// A list's table, or a line for an empty list.
    fn table(&self, table: &Table, none: &str) -> String {
        if table.rows.is_empty() {
            return format!("{none}\n");
        }
        let lines = table.lines(self.headers, self.colour, self.max_chars);
        let mut text = lines.join("\n");
        text.push('\n');
        text
    }
}

fn state_tone(state: VmState) -> Tone {
    match state {
        VmState::Running => Tone::Good,
        VmState::Starting | VmState::Migrating | VmState::Paused | VmState::Stopping => Tone::Warn,
        VmState::Failed | VmState::Unknown => Tone::Bad,
        VmState::Stopped | VmState::Succeeded => Tone::Dim,
    }
}

fn verdict_tone(verdict: HealthVerdict) -> Tone {
    match verdict {
        HealthVerdict::Healthy => Tone::Good,
        HealthVerdict::Unknown | HealthVerdict::Degraded => Tone::Warn,
        HealthVerdict::Critical => Tone::Bad,
    }
}

fn agent_tone(agent: AgentStatus) -> Tone {
    match agent {
        AgentStatus::Up => Tone::Good,
        AgentStatus::Silent => Tone::Bad,
        AgentStatus::Waiting => Tone::Warn,
        AgentStatus::Off | AgentStatus::Disabled | AgentStatus::Unmanaged => Tone::Dim,
    }
}

fn severity_tone(severity: Severity) -> Tone {
    match severity {
        Severity::Info => Tone::Plain,
        Severity::Warning => Tone::Warn,
        Severity::Critical => Tone::Bad,
    }
}

/// No colour without findings.
fn findings_tone(findings: usize) -> Tone {
    if findings == 0 { Tone::Plain } else { Tone::Warn }
}
