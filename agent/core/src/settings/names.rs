//! The collectors by name, and the settings that are about all of them.

use std::{collections::BTreeMap, time::Duration};

use virtfleet_wire::settings::{MetricsSettings, Span};

use super::{RegistryError, filters};

/// Time that one collector has in a scrape, unless the settings say otherwise: all together have 1.5 s more, so a page comes
/// before Prometheus' usual 10 s are over.
const DEADLINE: Duration = Duration::from_secs(8);
/// The unit's watchdog waits for two minutes, and for a minute at the start.
const MAX_DEADLINE: Duration = Duration::from_secs(45);

/// Every collector of the agent by name, sorted. A test of the agent compares it with the registration table.
pub const COLLECTOR_NAMES: &[&str] = &[
    "arp",
    "bonding",
    "btrfs",
    "buddyinfo",
    "cgroups",
    "conntrack",
    "cpu",
    "cpu_vulnerabilities",
    "cpufreq",
    "disks",
    "diskstats",
    "dmi",
    "dmmultipath",
    "dns",
    "edac",
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
    "powersupplyclass",
    "pressure",
    "processes",
    "qdisc",
    "rapl",
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
    "tapestats",
    "tcpstat",
    "textfile",
    "thermal_zone",
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

/// Checks the section `metrics` as the agent's registry does, without the command line.
///
/// # Errors
/// The first setting that no registry can be built from.
pub(super) fn check_metrics(settings: &MetricsSettings) -> Result<(), RegistryError> {
    check_names(COLLECTOR_NAMES, settings, &BTreeMap::new())?;
    deadline(settings)?;
    filters::check(settings)
}

/// Checks the names of collectors in the settings and on the command line.
///
/// # Errors
/// A name that is not among `known`, with the nearest that is.
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

/// Time that one collector has in a scrape.
///
/// # Errors
/// It is zero or longer than 45 s.
pub fn deadline(settings: &MetricsSettings) -> Result<Duration, RegistryError> {
    let wrong = |reason| {
        Err(RegistryError::Value {
            key: "metrics.deadline",
            reason,
        })
    };
    match settings.deadline {
        None => Ok(DEADLINE),
        Some(Span(deadline)) if deadline.is_zero() => {
            wrong("nothing is collected in no time; 8s is the default")
        }
        Some(Span(deadline)) if deadline > MAX_DEADLINE => {
            wrong("longer than 45s: systemd would take a hung collector for a hung agent")
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
