//! The checks: turn what was observed into result lines. They read nothing themselves.

use super::{
    CheckResult, CheckStatus, PemFile, Seen,
    disks::{disks, duplicates},
    dns::dns,
    enrolment::enrolment,
    passes::passes,
    virtio::virtio,
    way::way,
};

use virtfleet_agent_host::Port;
use virtfleet_agent_state::identity::is_important;

use crate::report::remedy;

/// Remaining validity of a certificate below which it is a warning, in seconds: 14 days.
const EXPIRY_WARNING: u64 = 14 * 86_400;
/// Age of a state file above which it is a warning, in milliseconds: a day. The slow timer writes
/// it more often.
const MAX_AGE_MS: u64 = 86_400_000;
/// 2024-01-01, in nanoseconds since 1970. An earlier wall clock was never set.
const EARLIEST_CLOCK_NS: u64 = 1_704_067_200 * 1_000_000_000;

/// All checks, in the order in which an admin would make them.
pub fn check(seen: &Seen) -> Vec<CheckResult> {
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
        lines.push(CheckResult::new(
            CheckStatus::Fail,
            "tls",
            format!("the files do not match: {reason}"),
            next,
        ));
    }
    lines.extend(enrolment(seen));
    lines.extend(way(seen));
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

fn settings(seen: &Seen) -> Vec<CheckResult> {
    let problems = &seen.settings.problems;
    if problems.is_empty() {
        let detail = match seen.settings.files.len() {
            0 => "no file; the defaults apply".to_owned(),
            files => match seen.settings.ignored.len() {
                0 => format!("{files} read, every setting applied"),
                keys => format!("{files} read, every setting applied; removed keys, ignored: {keys}"),
            },
        };
        return vec![CheckResult::ok("settings", detail)];
    }
    let next = "virtfleet-agent check-config";
    problems
        .iter()
        .map(|problem| CheckResult::new(CheckStatus::Fail, "settings", problem.to_string(), next))
        .collect()
}

fn pem_file(pem: &PemFile, seen: &Seen) -> CheckResult {
    let PemFile { key, path, content } = pem;
    let what = format!("tls {key}");
    let now = seen.clock.realtime_ns / 1_000_000_000;
    let dates = format!("openssl x509 -in {path} -noout -dates");
    match content {
        Err(reason) => CheckResult::new(
            CheckStatus::Fail,
            what,
            format!("{path}: {reason}"),
            format!("ls -l {path}"),
        ),
        Ok(None) => CheckResult::ok(what, format!("{path}: readable")),
        Ok(Some(valid)) if now < valid.not_before => {
            CheckResult::new(CheckStatus::Fail, what, format!("{path}: not valid yet"), dates)
        }
        Ok(Some(valid)) if now > valid.not_after => {
            let days = now.saturating_sub(valid.not_after) / 86_400;
            CheckResult::new(
                CheckStatus::Fail,
                what,
                format!("{path}: expired {days} d ago"),
                dates,
            )
        }
        Ok(Some(valid)) => {
            let left = valid.not_after.saturating_sub(now);
            let detail = format!("{path}: {} d left", left / 86_400);
            if left < EXPIRY_WARNING {
                CheckResult::new(CheckStatus::Warn, what, detail, dates)
            } else {
                CheckResult::ok(what, detail)
            }
        }
    }
}

fn listeners(seen: &Seen) -> Vec<CheckResult> {
    if seen.listeners.is_empty() {
        let detail = "none can be served, so metrics and the report are not available";
        return vec![CheckResult::new(
            CheckStatus::Fail,
            "listeners",
            detail,
            "virtfleet-agent check-config",
        )];
    }
    let one = |listener: &super::ListenerSeen| {
        let what = format!("listener {}", listener.name);
        let address = &listener.address;
        match (&listener.port, seen.agent_pid) {
            (Port::Free, _) => CheckResult::ok(what, format!("{address}: free")),
            (Port::InUse, Some(pid)) => CheckResult::ok(
                what,
                format!("{address}: in use; virtfleet-agent runs as process {pid}"),
            ),
            (Port::InUse, None) if listener.held_by_root => CheckResult::warn(
                what,
                format!(
                    "{address}: held by root, as by virtfleet-agent.socket; virtfleet-agent does not run"
                ),
                "systemctl status virtfleet-agent.socket virtfleet-agent.service",
            ),
            (Port::InUse, None) => {
                let port = address.rsplit(':').next().unwrap_or_default();
                let detail = format!("{address}: in use by another program");
                CheckResult::new(
                    CheckStatus::Fail,
                    what,
                    detail,
                    format!("sudo ss -ltnp 'sport = :{port}'"),
                )
            }
            (Port::Refused(reason), _) => CheckResult::new(
                CheckStatus::Fail,
                what,
                format!("{address}: {reason}"),
                "ip address",
            ),
        }
    };
    seen.listeners.iter().map(one).collect()
}

fn roots(seen: &Seen) -> impl Iterator<Item = CheckResult> {
    seen.roots.iter().map(|(flag, path, readable)| match readable {
        Ok(()) => CheckResult::ok(*flag, path),
        // udev's data only adds serials and models to the disks.
        Err(reason) => {
            let status = if *flag == "--path.udev.data" {
                CheckStatus::Warn
            } else {
                CheckStatus::Fail
            };
            CheckResult::new(
                status,
                *flag,
                format!("{path}: {reason}"),
                format!("ls -ld {path}"),
            )
        }
    })
}

fn platform(seen: &Seen) -> CheckResult {
    match seen.vendor.as_deref() {
        Some("KubeVirt") => CheckResult::ok("platform", "KubeVirt"),
        other => {
            let detail = format!(
                "SMBIOS vendor is {}, not KubeVirt: the collector may not know this machine",
                other.unwrap_or("unknown")
            );
            CheckResult::new(
                CheckStatus::Warn,
                "platform",
                detail,
                "cat /sys/class/dmi/id/sys_vendor",
            )
        }
    }
}

fn identity(seen: &Seen) -> Vec<CheckResult> {
    let lacking: Vec<CheckResult> = seen
        .missing
        .iter()
        .filter(|missing| is_important(missing) && missing.field != "bootId")
        .map(|missing| {
            let next = match remedy(&missing.field) {
                "virtfleet-agent doctor" => "virtfleet-agent report",
                other => other,
            };
            CheckResult::new(
                CheckStatus::Warn,
                format!("identity {}", missing.field),
                &missing.reason,
                next,
            )
        })
        .collect();
    if lacking.is_empty() {
        vec![CheckResult::ok("identity", "complete in the required fields")]
    } else {
        lacking
    }
}

fn state(seen: &Seen) -> CheckResult {
    let next = "sudo virtfleet-agent state";
    match &seen.state {
        Err(reason) => CheckResult::new(CheckStatus::Warn, "state file", reason, next),
        Ok(state) if !state.this_boot => {
            CheckResult::new(CheckStatus::Warn, "state file", "written in another boot", next)
        }
        Ok(state) => {
            let detail = format!("written {} minutes ago", state.age_ms / 60_000);
            if state.age_ms > MAX_AGE_MS {
                CheckResult::new(CheckStatus::Warn, "state file", detail, next)
            } else {
                CheckResult::ok("state file", detail)
            }
        }
    }
}

fn boot(seen: &Seen) -> CheckResult {
    if seen.boot_id.is_empty() {
        let next = "cat /proc/sys/kernel/random/boot_id";
        CheckResult::new(
            CheckStatus::Warn,
            "boot id",
            "cannot be read: a reboot will go unnoticed",
            next,
        )
    } else {
        CheckResult::ok("boot id", &seen.boot_id)
    }
}

fn clock(seen: &Seen) -> CheckResult {
    if seen.clock.realtime_ns < EARLIEST_CLOCK_NS {
        let detail = "before 2024: it was never set, and certificates will not be valid";
        CheckResult::new(CheckStatus::Fail, "clock", detail, "timedatectl")
    } else {
        CheckResult::ok("clock", "plausible")
    }
}

fn collectors(seen: &Seen) -> Vec<CheckResult> {
    let (good, bad): (Vec<_>, Vec<_>) = seen.collectors.iter().partition(|run| run.result.is_ok());
    let mut lines = Vec::new();
    if !good.is_empty() {
        let samples: usize = good.iter().filter_map(|run| run.result.as_ref().ok()).sum();
        lines.push(CheckResult::ok(
            "collectors",
            format!("{} ran, {samples} samples", good.len()),
        ));
    }
    for run in bad {
        let reason = run.result.as_ref().err().map_or("", String::as_str);
        let next = format!("virtfleet-agent metrics --collector.{}", run.name);
        lines.push(CheckResult::new(
            CheckStatus::Fail,
            format!("collector {}", run.name),
            reason,
            next,
        ));
    }
    lines
}
