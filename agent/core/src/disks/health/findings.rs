//! What of a disk's health somebody should know.

use virtfleet_wire::finding::{Finding, Severity};

use super::{super::state::DiskState, Answer, Health, Usage, trend::Point};

/// From here on it is critical however slowly it fills, in percent.
const NEARLY_FULL: f64 = 95.0;
/// Below this much the pace says nothing yet, in percent: a new node fills its disks with images.
const FILLING_FROM: f64 = 50.0;
const HOUR: f64 = 3600.0;
/// Full within so many hours is critical.
const SOON: f64 = 4.0 * HOUR;
/// Full within so many hours is worth a warning.
const WITHIN_A_DAY: f64 = 24.0 * HOUR;

/// What is wrong with a disk that is in its place. Their ids are listed in `docs/findings.md`.
pub fn findings(disk: &DiskState) -> Vec<Finding> {
    let Some(health) = &disk.health else {
        return Vec::new();
    };
    let mut found = Vec::new();
    found.extend(silent(disk, health));
    found.extend(errors(disk, health));
    found.extend(health.look.space.and_then(|usage| {
        let full_in = health.space_full_in_s;
        filling(disk, &SPACE, usage, full_in)
    }));
    found.extend(health.look.inodes.and_then(|usage| {
        let full_in = health.inodes_full_in_s;
        filling(disk, &INODES, usage, full_in)
    }));
    found.extend(device(disk, health));
    found
}

fn about(id: &str, severity: Severity, disk: &DiskState, reason: &str, message: String) -> Finding {
    let finding = Finding::new(id, severity, ("Disk", &disk.name), reason, message);
    finding.with("device", &disk.device)
}

/// Where it is, for a person.
fn place(disk: &DiskState) -> &str {
    if disk.mount_point.is_empty() {
        &disk.filesystem
    } else {
        &disk.mount_point
    }
}

fn silent(disk: &DiskState, health: &Health) -> Option<Finding> {
    let (reason, message) = match &health.look.answer {
        Answer::Unknown | Answer::Yes => return None,
        Answer::Silent => (
            "Hangs",
            format!("{} does not answer: its disk hangs", place(disk)),
        ),
        Answer::Error(error) => (
            "Fails",
            format!(
                "{} answers with an error: {error}; the kernel may have shut the filesystem down",
                place(disk)
            ),
        ),
    };
    Some(
        about("disk-not-answering", Severity::Critical, disk, reason, message)
            .remedy("look at the kernel's messages (`dmesg`) and at the volume; then unmount it, check it, and mount it again, or reboot"),
    )
}

fn errors(disk: &DiskState, health: &Health) -> Option<Finding> {
    let look = &health.look;
    let count = look.error_count();
    if count == 0 {
        return None;
    }
    let check = match disk.filesystem.as_str() {
        "btrfs" => {
            "`btrfs device stats` and `btrfs scrub start`; `btrfs device stats -z` sets the counts back"
                .to_owned()
        }
        _ => format!(
            "unmount it and check it: `e2fsck -f /dev/{}`, which also forgets the count",
            look.block
        ),
    };
    let message = format!(
        "the {} at {} has met {count} errors",
        disk.filesystem,
        place(disk)
    );
    let mut finding = about(
        "disk-filesystem-errors",
        Severity::Warning,
        disk,
        "FilesystemErrors",
        message,
    );
    for (kind, count) in &look.errors {
        finding = finding.with(kind, count);
    }
    if let Some(last) = look.last_error_s {
        finding = finding.with("lastErrorUnixSeconds", last);
    }
    if let Some(function) = &look.last_error_in {
        finding = finding.with("lastErrorIn", function);
    }
    Some(finding.remedy(format!(
        "look at the kernel's messages (`dmesg`), back it up; {check}"
    )))
}

/// What can run out.
struct Resource {
    id: &'static str,
    /// The reason when it will be full soon.
    fills: &'static str,
    /// The reason when little is left.
    full: &'static str,
    /// For the sentence.
    unit: &'static str,
    remedy: &'static str,
}

const SPACE: Resource = Resource {
    id: "disk-space",
    fills: "SpaceFillsUp",
    full: "SpaceNearlyFull",
    unit: "bytes",
    remedy: "find what grows (`du -x -d 2`), remove what is not needed, or make the volume larger (`grow: true` takes it)",
};
const INODES: Resource = Resource {
    id: "disk-inodes",
    fills: "InodesFillUp",
    full: "InodesNearlyFull",
    unit: "inodes",
    remedy: "find the many small files (`du -x --inodes -d 2`) and remove them; a larger volume has more inodes, too",
};

fn filling(disk: &DiskState, resource: &Resource, usage: Usage, full_in: Option<f64>) -> Option<Finding> {
    // A swap area is there to be used, and its use is no trend.
    let full_in = full_in.filter(|_| !disk.mount_point.is_empty());
    let percent = usage.percent();
    let soon = full_in.filter(|seconds| *seconds <= WITHIN_A_DAY && percent >= FILLING_FROM);
    let severity = match soon {
        _ if percent > NEARLY_FULL => Severity::Critical,
        Some(seconds) if seconds <= SOON => Severity::Critical,
        Some(_) => Severity::Warning,
        None => return None,
    };
    let severity = if disk.mount_point.is_empty() {
        Severity::Warning
    } else {
        severity
    };
    let pace = soon.map_or_else(String::new, |seconds| {
        format!(
            ", and full in {:.1} hours at the pace of the last hours",
            seconds / HOUR
        )
    });
    let unit = resource.unit;
    let message = format!(
        "{} is {percent:.1} % full: {} of {} {unit} are used{pace}",
        place(disk),
        usage.used,
        usage.full()
    );
    let reason = match soon {
        Some(_) => resource.fills.to_owned(),
        None => resource.full.to_owned(),
    };
    let finding = about(resource.id, severity, disk, &reason, message)
        .with("used", usage.used)
        .with("available", usage.available)
        .with("percent", format!("{percent:.1}"));
    let finding = match soon {
        Some(seconds) => finding.with("fullInHours", format!("{:.1}", seconds / HOUR)),
        None => finding,
    };
    Some(finding.remedy(if disk.mount_point.is_empty() {
        "find what needs the memory (`ps -eo rss,comm --sort -rss`)"
    } else {
        resource.remedy
    }))
}

/// Only what came within the window: a disk counts a few while it is attached, and commands that it does not know.
fn device(disk: &DiskState, health: &Health) -> Option<Finding> {
    let grown = |value: fn(&Point) -> Option<u64>| {
        let first = health.points.iter().find_map(value)?;
        let last = health.points.iter().rev().find_map(value)?;
        last.checked_sub(first).filter(|grown| *grown > 0)
    };
    let errors = grown(|point| point.io_errors);
    let timeouts = grown(|point| point.io_timeouts);
    if errors.is_none() && timeouts.is_none() {
        return None;
    }
    let (errors, timeouts) = (errors.unwrap_or(0), timeouts.unwrap_or(0));
    // A command that a disk does not know is an error, too; no healthy disk lets one time out.
    let severity = if timeouts > 0 {
        Severity::Warning
    } else {
        Severity::Info
    };
    let message = format!(
        "/dev/{} has met {errors} I/O errors and {timeouts} timeouts in the last hours",
        disk.device
    );
    Some(
        about("disk-io-errors", severity, disk, "IoErrors", message)
            .with("errors", errors)
            .with("timeouts", timeouts)
            .remedy("look at the kernel's messages (`dmesg`) and at the volume's storage"),
    )
}

#[cfg(test)]
mod tests;
