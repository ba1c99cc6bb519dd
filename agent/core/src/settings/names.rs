//! Names of the collectors, and the settings that concern all of them.

use std::{collections::BTreeMap, time::Duration};

use virtfleet_wire::settings::{MetricsSettings, Span};

use super::{RegistryError, filters};

/// Default time limit of one collector in a scrape. All together have 1.5 s more, so a page is
/// complete within Prometheus' default of 10 s.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(8);
/// Maximum time limit of a collector: the unit's watchdog waits two minutes, and one minute at the
/// start.
const MAX_DEADLINE: Duration = Duration::from_secs(45);

/// Names of all collectors, sorted. A test of the agent compares them with the registration table.
pub const COLLECTOR_NAMES: &[&str] = &[
    "arp",
    "bonding",
    "btrfs",
    "buddyinfo",
    "cgroups",
    "conntrack",
    "cpu",
    "cpu_vulnerabilities",
    "disks",
    "diskstats",
    "dmi",
    "dmmultipath",
    "dns",
    "entropy",
    "ethtool",
    "filefd",
    "filesystem",
    "guest_certificates",
    "guest_cgroups",
    "guest_memory",
    "guest_node",
    "guest_time",
    "guest_units",
    "hwmon",
    "interrupts",
    "ipvs",
    "kernel_hung",
    "ksmd",
    "lnstat",
    "loadavg",
    "logind",
    "mdadm",
    "meminfo",
    "meminfo_numa",
    "mountstats",
    "netclass",
    "netdev",
    "netstat",
    "network_route",
    "nfs",
    "nfsd",
    "nvme",
    "os",
    "pressure",
    "processes",
    "qdisc",
    "schedstat",
    "selinux",
    "slabinfo",
    "sockstat",
    "softirqs",
    "softnet",
    "stat",
    "swap",
    "sysctl",
    "systemd",
    "tcpstat",
    "textfile",
    "time",
    "timex",
    "udp_queues",
    "uname",
    "virtio",
    "vmstat",
    "watchdog",
    "xfrm",
    "xfs",
    "zfs",
    "zoneinfo",
];

/// Checks the section `metrics`, without the command line.
///
/// # Errors
///
/// The first invalid setting.
pub(super) fn check_metrics(settings: &MetricsSettings) -> Result<(), RegistryError> {
    check_names(COLLECTOR_NAMES, settings, &BTreeMap::new())?;
    deadline(settings)?;
    filters::check(settings)
}

/// Checks the names of collectors in the settings and on the command line.
///
/// # Errors
///
/// A name is not in `known`; the error contains a similar known name.
pub fn check_names(
    known: &[&'static str],
    settings: &MetricsSettings,
    overrides: &BTreeMap<String, bool>,
) -> Result<(), RegistryError> {
    for (place, names) in [
        (
            "metrics.collectors",
            settings.collectors.keys().collect::<Vec<_>>(),
        ),
        ("metrics.maxSeriesOf", settings.max_series_of.keys().collect()),
        ("--[no-]collector.NAME", overrides.keys().collect()),
    ] {
        if let Some(name) = names.into_iter().find(|name| !known.contains(&name.as_str())) {
            return Err(RegistryError::Unknown {
                place,
                name: name.clone(),
                nearest: nearest(known, name),
            });
        }
    }
    Ok(())
}

/// Time limit of one collector in a scrape.
///
/// # Errors
///
/// It is zero or longer than 45 s.
pub fn deadline(settings: &MetricsSettings) -> Result<Duration, RegistryError> {
    let wrong = |reason| {
        Err(RegistryError::Value {
            key: "metrics.deadline",
            reason,
        })
    };
    match settings.deadline {
        None => Ok(DEFAULT_DEADLINE),
        Some(Span(deadline)) if deadline.is_zero() => wrong("must be more than 0; 8s is the default"),
        Some(Span(deadline)) if deadline > MAX_DEADLINE => {
            wrong("longer than 45s: systemd would treat a hung collector as a hung agent")
        }
        Some(Span(deadline)) => Ok(deadline),
    }
}

fn nearest(known: &[&'static str], name: &str) -> Option<&'static str> {
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(known, name), *known))
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 3))
        .min()
        .map(|(_, known)| known)
}
