//! Findings about the health of disks.

use virtfleet_wire::finding::{Finding, Severity};

use super::{super::state::DiskState, Health, StatfsResult, Usage, trend::Point};

/// Usage from which a disk is critical even if its usage does not grow, in percent.
const CRITICAL_PERCENT: f64 = 95.0;
/// Usage below which the trend is ignored, in percent: a new node fills its disks with images.
const MIN_TREND_PERCENT: f64 = 50.0;
const HOUR_SECONDS: f64 = 3600.0;
/// A disk that will be full within this time is critical, in seconds.
const CRITICAL_WITHIN_SECONDS: f64 = 4.0 * HOUR_SECONDS;
/// A disk that will be full within this time is reported as a warning, in seconds.
const WARNING_WITHIN_SECONDS: f64 = 24.0 * HOUR_SECONDS;

/// Returns the health findings of a disk in use. Their ids are listed in `docs/findings.md`.
pub fn findings(disk: &DiskState) -> Vec<Finding> {
    let Some(health) = &disk.health else {
        return Vec::new();
    };
    let mut found = Vec::new();
    found.extend(silent(disk, health));
    found.extend(read_only(disk, health));
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

/// Mount point or device name for messages.
fn place(disk: &DiskState) -> &str {
    if disk.mount_point.is_empty() {
        &disk.filesystem
    } else {
        &disk.mount_point
    }
}

fn silent(disk: &DiskState, health: &Health) -> Option<Finding> {
    let (reason, message) = match &health.look.answer {
        StatfsResult::Unknown | StatfsResult::Yes => return None,
        StatfsResult::Silent => (
            "Hangs",
            format!("{} does not respond: I/O on its disk hangs", place(disk)),
        ),
        StatfsResult::Error(error) => (
            "Fails",
            format!(
                "statfs on {} failed: {error}; the kernel may have shut the filesystem down",
                place(disk)
            ),
        ),
    };
    Some(
        about("disk-not-answering", Severity::Critical, disk, reason, message)
            .remedy("read the kernel log (`dmesg`) and check the volume; then unmount, check and remount the filesystem, or reboot"),
    )
}

/// A filesystem whose mount options say `ro` is reported with the plan.
fn read_only(disk: &DiskState, health: &Health) -> Option<Finding> {
    let error = health.look.write_error.as_ref()?;
    let message = format!(
        "{} rejects writes (`{error}`) after an error of the filesystem, although its mount options do not say so",
        place(disk)
    );
    let finding = about(
        "disk-read-only",
        Severity::Critical,
        disk,
        "WritesRejected",
        message,
    );
    let finding = finding.with("mountPoint", &disk.mount_point).with("error", error);
    Some(finding.remedy("read the kernel log (`dmesg`), unmount and check the filesystem, and reboot"))
}

fn errors(disk: &DiskState, health: &Health) -> Option<Finding> {
    let look = &health.look;
    let count = look.error_count();
    if count == 0 {
        return None;
    }
    let check = match disk.filesystem.as_str() {
        "btrfs" => {
            "`btrfs device stats` and `btrfs scrub start`; `btrfs device stats -z` resets the counters"
                .to_owned()
        }
        _ => format!(
            "unmount it and check it: `e2fsck -f /dev/{}`, which also resets the counter",
            look.block
        ),
    };
    let message = format!(
        "the {} at {} recorded {count} errors",
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
        "read the kernel log (`dmesg`), back up the data; {check}"
    )))
}

/// Resource of a filesystem that can run out: space or inodes.
struct Resource {
    id: &'static str,
    /// Finding reason if the resource runs out soon.
    fills: &'static str,
    /// Finding reason if little is left.
    full: &'static str,
    unit: &'static str,
    remedy: &'static str,
}

const SPACE: Resource = Resource {
    id: "disk-space",
    fills: "SpaceFillsUp",
    full: "SpaceNearlyFull",
    unit: "bytes",
    remedy: "find what grows (`du -x -d 2`), remove what is not needed, or enlarge the volume (`grow: true` uses the new space)",
};
const INODES: Resource = Resource {
    id: "disk-inodes",
    fills: "InodesFillUp",
    full: "InodesNearlyFull",
    unit: "inodes",
    remedy: "find the many small files (`du -x --inodes -d 2`) and remove them; a larger volume also has more inodes",
};

fn filling(disk: &DiskState, resource: &Resource, usage: Usage, full_in: Option<f64>) -> Option<Finding> {
    // Swap is meant to be used, so its usage is not a trend.
    let full_in = full_in.filter(|_| !disk.mount_point.is_empty());
    let percent = usage.percent();
    let soon = full_in.filter(|seconds| *seconds <= WARNING_WITHIN_SECONDS && percent >= MIN_TREND_PERCENT);
    let severity = match soon {
        _ if percent > CRITICAL_PERCENT => Severity::Critical,
        Some(seconds) if seconds <= CRITICAL_WITHIN_SECONDS => Severity::Critical,
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
            ", and full in {:.1} hours at the rate of the last hours",
            seconds / HOUR_SECONDS
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
        Some(seconds) => finding.with("fullInHours", format!("{:.1}", seconds / HOUR_SECONDS)),
        None => finding,
    };
    Some(finding.remedy(if disk.mount_point.is_empty() {
        "find what needs the memory (`ps -eo rss,comm --sort -rss`)"
    } else {
        resource.remedy
    }))
}

/// Counts only errors within the window: a disk reports a few while it is attached, and for
/// commands that it does not support.
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
    // An unsupported command counts as an error too, but never as a timeout.
    let severity = if timeouts > 0 {
        Severity::Warning
    } else {
        Severity::Info
    };
    let message = format!(
        "/dev/{} had {errors} I/O errors and {timeouts} timeouts in the last hours",
        disk.device
    );
    Some(
        about("disk-io-errors", severity, disk, "IoErrors", message)
            .with("errors", errors)
            .with("timeouts", timeouts)
            .remedy("read the kernel log (`dmesg`) and check the storage of the volume"),
    )
}

#[cfg(test)]
mod tests;
