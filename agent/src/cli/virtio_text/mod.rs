//! The tree of virtio devices as text: devices with their queues and interrupts, interfaces, disks,
//! vectors, findings.

mod detail;
mod devices;
mod disks;
mod nics;

use anstyle::AnsiColor;
use virtfleet_agent_core::virtio::{Machine, ranges};
use virtfleet_agent_state::virtio::Virtio;
use virtfleet_wire::finding::{Finding, Severity};

use detail::Detail;

use super::rows::{Cell, rows};

/// With more queues in all, only the sums are shown, so that the text fits a few screens.
const MAX_QUEUES_IN_ALL: usize = 96;
/// With more devices, only the sums are shown.
const MAX_DEVICES: usize = 24;
/// Number of devices that are named as those with the most vectors.
const TOP_VECTORS: usize = 3;
/// Limit of lines about what could not be read.
const MAX_UNREAD: usize = 5;

/// The whole text. `all` shows each queue, even if there are many. `root`: the process runs as
/// root, so no further data is available.
pub(super) fn text(seen: &Virtio, all: bool, root: bool) -> String {
    let machine = &seen.machine;
    let mut text = head(machine);
    let queues = machine.devices.iter().map(|device| device.queues.len());
    let sums = !all && (machine.devices.len() > MAX_DEVICES || queues.sum::<usize>() > MAX_QUEUES_IN_ALL);
    let detail = Detail { all, sums };
    text.push_str(&part("devices", &devices::text(machine, detail)));
    text.push_str(&part("interfaces", &nics::text(seen, detail)));
    text.push_str(&part("disks", &disks::text(machine, detail)));
    text.push_str(&part("findings", &found(&seen.findings)));
    if seen.findings.is_empty() {
        text.push_str("no findings\n");
    }
    text.push_str(&notes(seen, root));
    text
}

fn head(machine: &Machine) -> String {
    let cpus = &machine.cpus;
    let limit = machine.vectors.limit.map_or_else(String::new, |limit| {
        let left = machine.vectors.left().unwrap_or(0);
        format!(" of about {limit}, about {left} left")
    });
    let kernel = if machine.kernel.is_empty() {
        "unknown"
    } else {
        &machine.kernel
    };
    rows(
        0,
        &[
            vec!["kernel".into(), kernel.into()],
            vec![
                "vCPUs".into(),
                format!(
                    "{} online ({}), {} present, {} possible",
                    cpus.online.len(),
                    ranges(&cpus.online),
                    cpus.present.len(),
                    cpus.possible.len()
                )
                .into(),
            ],
            vec![
                "vectors".into(),
                format!("{} in use{limit}{}", machine.vectors.used, most(machine)).into(),
            ],
        ],
    )
}

/// The devices with the most vectors.
fn most(machine: &Machine) -> String {
    let mut all: Vec<&(String, u32)> = machine.vectors.by_device.iter().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.1));
    let named = all.iter().take(TOP_VECTORS).map(|(address, count)| {
        let mut devices = machine.devices.iter();
        let device = devices.find(|device| device.address == *address);
        format!("{} {count}", device.map_or(address, |device| &device.name))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() {
        String::new()
    } else {
        format!("; most: {}", named.join(", "))
    }
}

/// A part with a heading; nothing if the content is empty.
fn part(head: &str, content: &str) -> String {
    if content.is_empty() {
        String::new()
    } else {
        format!("\n{head}\n{content}")
    }
}

fn found(findings: &[Finding]) -> String {
    let word = |finding: &Finding| match finding.severity {
        Severity::Info => Cell::coloured("info", AnsiColor::Cyan),
        Severity::Warning => Cell::coloured("warning", AnsiColor::Yellow),
        Severity::Critical => Cell::coloured("critical", AnsiColor::Red),
    };
    let lines = findings.iter().flat_map(|finding| {
        [
            vec![word(finding), finding.message.as_str().into()],
            vec![Cell::default(), format!("→ {}", finding.remedy).into()],
            vec![Cell::default(), format!("  {}", finding.id).into()],
        ]
    });
    rows(2, &lines.collect::<Vec<_>>())
}

/// What is unknown, and how to find it out.
fn notes(seen: &Virtio, root: bool) -> String {
    let machine = &seen.machine;
    let mut notes = Vec::new();
    let offered = machine.devices.iter().any(|device| device.offered.is_some());
    if !offered && !machine.devices.is_empty() {
        notes.push(if root {
            "not known: what devices offer; this kernel does not export them (CONFIG_VIRTIO_DEBUG, debugfs)"
                .to_owned()
        } else {
            "not known: what devices offer, which only root can read: sudo virtfleet-agent virtio".to_owned()
        });
    }
    notes.extend(seen.unusable.iter().map(|reason| format!("not usable: {reason}")));
    let unread = machine.unread.iter().take(MAX_UNREAD);
    notes.extend(unread.map(|one| format!("not read: {}: {}", one.what, one.because)));
    if machine.unread.len() > MAX_UNREAD {
        notes.push(format!("not read: {} more", machine.unread.len() - MAX_UNREAD));
    }
    let lines: Vec<Vec<Cell>> = notes.into_iter().map(|note| vec![note.into()]).collect();
    let text = rows(0, &lines);
    if text.is_empty() {
        text
    } else {
        format!("\n{text}")
    }
}

#[cfg(test)]
mod tests;
