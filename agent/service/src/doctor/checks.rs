//! The checks: from what was seen to lines. Nothing is read here.

use super::{
    Line, PemFile, Seen, Status,
    disks::{disks, duplicates},
    dns::dns,
    passes::passes,
    virtio::virtio,
};

use virtfleet_agent_host::Port;
use virtfleet_agent_state::identity::is_important;

use crate::report::remedy;

/// A certificate with less than this left is a warning, in seconds: 14 days.
const SOON: u64 = 14 * 86_400;
/// A state file older than this is a warning, in milliseconds: a day. The slow timer writes it more often.
const STALE_MS: u64 = 86_400_000;
/// 2024-01-01: a clock before it was never set.
const PAST_NS: u64 = 1_704_067_200 * 1_000_000_000;

/// All checks, in the order in which a person would make them.
pub fn check(seen: &Seen) -> Vec<Line> {
    let mut lines = settings(seen);
    lines.extend(seen.pem.iter().map(|pem| pem_file(pem, seen)));
    if let Some(reason) = &seen.tls {
        let path = |key| {
            let file = seen.pem.iter().find(|file| file.key == key);
            file.map_or(key, |file| file.path.as_str())
        };
        let next = format!(
            "openssl x509 -in {} -noout -pubkey | diff - <(openssl pkey -in {} -pubout)",
            path("certificate"),
            path("key")
        );
        lines.push(line(
            Status::Fail,
            "tls",
            format!("the files do not go together: {reason}"),
            next,
        ));
    }
    lines.extend(listeners(seen));
    lines.extend(roots(seen));
    lines.push(platform(seen));
    lines.extend(identity(seen));
    lines.push(state(seen));
    lines.extend(passes(seen));
    lines.extend(disks(seen));
    lines.extend(duplicates(seen));
    lines.extend(dns(seen));
    lines.extend(virtio(seen));
    lines.push(boot(seen));
    lines.push(clock(seen));
    lines.extend(collectors(seen));
    lines
}

fn line(status: Status, what: impl Into<String>, detail: impl Into<String>, next: impl Into<String>) -> Line {
    Line {
        status,
        what: what.into(),
        detail: detail.into(),
        next: next.into(),
    }
}

fn ok(what: impl Into<String>, detail: impl Into<String>) -> Line {
    line(Status::Ok, what, detail, "")
}

fn settings(seen: &Seen) -> Vec<Line> {
    let problems = &seen.settings.problems;
    if problems.is_empty() {
        let detail = match seen.settings.files.len() {
            0 => "no file; the defaults stand".to_owned(),
            files => format!("{files} read, every word applied"),
        };
        return vec![ok("settings", detail)];
    }
    let next = "virtfleet-agent check-config";
    problems
        .iter()
        .map(|problem| line(Status::Fail, "settings", problem.to_string(), next))
        .collect()
}

fn pem_file(pem: &PemFile, seen: &Seen) -> Line {
    let PemFile { key, path, content } = pem;
    let what = format!("tls {key}");
    let now = seen.clock.realtime_ns / 1_000_000_000;
    let dates = format!("openssl x509 -in {path} -noout -dates");
    match content {
        Err(reason) => line(
            Status::Fail,
            what,
            format!("{path}: {reason}"),
            format!("ls -l {path}"),
        ),
        Ok(None) => ok(what, format!("{path}: readable")),
        Ok(Some(valid)) if now < valid.not_before => {
            line(Status::Fail, what, format!("{path}: not valid yet"), dates)
        }
        Ok(Some(valid)) if now > valid.not_after => {
            let days = now.saturating_sub(valid.not_after) / 86_400;
            line(Status::Fail, what, format!("{path}: expired {days} d ago"), dates)
        }
        Ok(Some(valid)) => {
            let left = valid.not_after.saturating_sub(now);
            let detail = format!("{path}: {} d left", left / 86_400);
            if left < SOON {
                line(Status::Warn, what, detail, dates)
            } else {
                ok(what, detail)
            }
        }
    }
}

fn listeners(seen: &Seen) -> Vec<Line> {
    if seen.listeners.is_empty() {
        let detail = "none can be served, so nobody can read metrics or the report";
        return vec![line(
            Status::Fail,
            "listeners",
            detail,
            "virtfleet-agent check-config",
        )];
    }
    let one = |listener: &super::ListenerSeen| {
        let what = format!("listener {}", listener.name);
        let address = &listener.address;
        match (&listener.port, seen.agent_pid) {
            (Port::Free, _) => ok(what, format!("{address}: free")),
            (Port::InUse, Some(pid)) => ok(
                what,
                format!("{address}: in use, and virtfleet-agent runs as process {pid}"),
            ),
            (Port::InUse, None) => {
                let port = address.rsplit(':').next().unwrap_or_default();
                let detail = format!("{address}: in use by another program");
                line(
                    Status::Fail,
                    what,
                    detail,
                    format!("sudo ss -ltnp 'sport = :{port}'"),
                )
            }
            (Port::Refused(reason), _) => {
                line(Status::Fail, what, format!("{address}: {reason}"), "ip address")
            }
        }
    };
    seen.listeners.iter().map(one).collect()
}

fn roots(seen: &Seen) -> impl Iterator<Item = Line> {
    seen.roots.iter().map(|(flag, path, readable)| match readable {
        Ok(()) => ok(*flag, path),
        // udev's data only adds serials and models to the disks.
        Err(reason) => {
            let status = if *flag == "--path.udev.data" {
                Status::Warn
            } else {
                Status::Fail
            };
            line(
                status,
                *flag,
                format!("{path}: {reason}"),
                format!("ls -ld {path}"),
            )
        }
    })
}

fn platform(seen: &Seen) -> Line {
    match seen.vendor.as_deref() {
        Some("KubeVirt") => ok("platform", "KubeVirt"),
        other => {
            let detail = format!(
                "SMBIOS vendor is {}, not KubeVirt: the collector may not know this machine",
                other.unwrap_or("unknown")
            );
            line(
                Status::Warn,
                "platform",
                detail,
                "cat /sys/class/dmi/id/sys_vendor",
            )
        }
    }
}

fn identity(seen: &Seen) -> Vec<Line> {
    let lacking: Vec<Line> = seen
        .missing
        .iter()
        .filter(|missing| is_important(missing) && missing.field != "bootId")
        .map(|missing| {
            let next = match remedy(&missing.field) {
                "virtfleet-agent doctor" => "virtfleet-agent report",
                other => other,
            };
            line(
                Status::Warn,
                format!("identity {}", missing.field),
                &missing.reason,
                next,
            )
        })
        .collect();
    if lacking.is_empty() {
        vec![ok("identity", "complete where it matters")]
    } else {
        lacking
    }
}

fn state(seen: &Seen) -> Line {
    let next = "sudo virtfleet-agent state";
    match &seen.state {
        Err(reason) => line(Status::Warn, "state file", reason, next),
        Ok(state) if !state.this_boot => line(Status::Warn, "state file", "written in another boot", next),
        Ok(state) => {
            let detail = format!("written {} minutes ago", state.age_ms / 60_000);
            if state.age_ms > STALE_MS {
                line(Status::Warn, "state file", detail, next)
            } else {
                ok("state file", detail)
            }
        }
    }
}

fn boot(seen: &Seen) -> Line {
    if seen.boot_id.is_empty() {
        let next = "cat /proc/sys/kernel/random/boot_id";
        line(
            Status::Warn,
            "boot id",
            "cannot be read: a reboot will go unnoticed",
            next,
        )
    } else {
        ok("boot id", &seen.boot_id)
    }
}

fn clock(seen: &Seen) -> Line {
    if seen.clock.realtime_ns < PAST_NS {
        let detail = "before 2024: it was never set, and certificates will not be valid";
        line(Status::Fail, "clock", detail, "timedatectl")
    } else {
        ok("clock", "plausible")
    }
}

fn collectors(seen: &Seen) -> Vec<Line> {
    let (good, bad): (Vec<_>, Vec<_>) = seen.collectors.iter().partition(|run| run.result.is_ok());
    let mut lines = Vec::new();
    if !good.is_empty() {
        let samples: usize = good.iter().filter_map(|run| run.result.as_ref().ok()).sum();
        lines.push(ok("collectors", format!("{} ran, {samples} samples", good.len())));
    }
    for run in bad {
        let reason = run.result.as_ref().err().map_or("", String::as_str);
        let next = format!("virtfleet-agent metrics --collector.{}", run.name);
        lines.push(line(
            Status::Fail,
            format!("collector {}", run.name),
            reason,
            next,
        ));
    }
    lines
}
