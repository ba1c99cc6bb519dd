//! Filters of the collectors, created from their settings. The same functions check the settings
//! and create the collectors.

use std::time::Duration;

use regex_lite::Regex;
use virtfleet_wire::settings::{
    CpuSettings, DeviceFilter, EthtoolSettings, FieldsSettings, FilesystemSettings, HwmonSettings,
    InterruptsSettings, IpvsSettings, MetricsSettings, NetclassSettings, NetdevSettings, SlabinfoSettings,
    SystemdSettings,
};

use super::{NameFilter, RegistryError, folders::Folder, sysctl};

/// node_exporter's default: RAM disks, loop devices, floppies and partitions.
const DISKS_EXCLUDED: &str = r"^(z?ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+$";
/// node_exporter's default.
const MOUNTS_EXCLUDED: &str =
    "^/(dev|proc|run/credentials/.+|sys|var/lib/docker/.+|var/lib/containers/storage/.+)($|/)";
/// node_exporter's default.
const TYPES_EXCLUDED: &str = "^(autofs|binfmt_misc|bpf|cgroup2?|configfs|debugfs|devpts|devtmpfs|fusectl|hugetlbfs|iso9660|\
     mqueue|nsfs|overlay|proc|procfs|pstore|rpc_pipefs|securityfs|selinuxfs|squashfs|erofs|sysfs|tracefs)$";
const DEFAULT_MOUNT_TIMEOUT: Duration = Duration::from_secs(5);
/// node_exporter's default.
const NETSTAT_FIELDS: &str = "^(.*_(InErrors|InErrs)|Ip_Forwarding|Ip(6|Ext)_(InOctets|OutOctets)|Icmp6?_(InMsgs|OutMsgs)\
|TcpExt_(Listen.*|Syncookies.*|TCPSynRetrans|TCPTimeouts|TCPOFOQueue|TCPRcvQDrop)\
|Tcp_(ActiveOpens|InSegs|OutSegs|OutRsts|PassiveOpens|RetransSegs|CurrEstab)\
|Udp6?_(InDatagrams|OutDatagrams|NoPorts|RcvbufErrors|SndbufErrors))$";
/// node_exporter's default.
const UNITS_EXCLUDED: &str = ".+\\.(automount|device|mount|scope|slice)";

/// Labels that series of IPVS servers can have, in order.
pub const IPVS_LABELS: [&str; 6] = [
    "local_address",
    "local_port",
    "remote_address",
    "remote_port",
    "proto",
    "local_mark",
];

/// Filter, or the problem in the settings.
type Filter = Result<NameFilter, RegistryError>;

/// Checks the settings of all collectors, including disabled ones.
///
/// # Errors
///
/// The first invalid setting.
pub(super) fn check(settings: &MetricsSettings) -> Result<(), RegistryError> {
    cpu_info(&settings.cpu)?;
    interrupts(&settings.interrupts)?;
    slabinfo(&settings.slabinfo)?;
    vmstat(&settings.vmstat)?;
    diskstats(&settings.diskstats)?;
    mount_timeout(&settings.filesystem)?;
    mount_points(&settings.filesystem)?;
    filesystem_types(&settings.filesystem)?;
    arp(&settings.arp)?;
    ethtool(&settings.ethtool)?;
    ethtool_metrics(&settings.ethtool)?;
    ipvs(&settings.ipvs)?;
    netclass(&settings.netclass)?;
    netdev(&settings.netdev)?;
    netstat(&settings.netstat)?;
    qdisc(&settings.qdisc)?;
    sysctl::numbers(&settings.sysctl)?;
    sysctl::infos(&settings.sysctl)?;
    hwmon_chips(&settings.hwmon)?;
    hwmon_sensors(&settings.hwmon)?;
    systemd_units(&settings.systemd)?;
    Folder::all(&settings.textfile.directories).map(drop)
}

/// Devices of `arp`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn arp(settings: &DeviceFilter) -> Filter {
    devices(
        ["metrics.arp.deviceExclude", "metrics.arp.deviceInclude"],
        settings,
        None,
    )
}

/// Devices of `diskstats`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn diskstats(settings: &DeviceFilter) -> Filter {
    let keys = [
        "metrics.diskstats.deviceExclude",
        "metrics.diskstats.deviceInclude",
    ];
    devices(keys, settings, Some(DISKS_EXCLUDED))
}

/// Devices of `qdisc`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn qdisc(settings: &DeviceFilter) -> Filter {
    devices(
        ["metrics.qdisc.deviceExclude", "metrics.qdisc.deviceInclude"],
        settings,
        None,
    )
}

/// Devices of `ethtool`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn ethtool(settings: &EthtoolSettings) -> Filter {
    NameFilter::new(
        ["metrics.ethtool.deviceExclude", "metrics.ethtool.deviceInclude"],
        settings.device_exclude.as_deref(),
        settings.device_include.as_deref(),
        None,
    )
}

/// Devices of `netdev`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn netdev(settings: &NetdevSettings) -> Filter {
    NameFilter::new(
        ["metrics.netdev.deviceExclude", "metrics.netdev.deviceInclude"],
        settings.device_exclude.as_deref(),
        settings.device_include.as_deref(),
        None,
    )
}

/// Devices of `netclass`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn netclass(settings: &NetclassSettings) -> Filter {
    NameFilter::new(
        ["metrics.netclass.ignored", ""],
        settings.ignored.as_deref(),
        None,
        None,
    )
}

/// Interrupts by name.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn interrupts(settings: &InterruptsSettings) -> Filter {
    NameFilter::new(
        ["metrics.interrupts.nameExclude", "metrics.interrupts.nameInclude"],
        settings.name_exclude.as_deref(),
        settings.name_include.as_deref(),
        None,
    )
}

/// Slabs by name.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn slabinfo(settings: &SlabinfoSettings) -> Filter {
    NameFilter::new(
        ["metrics.slabinfo.slabsExclude", "metrics.slabinfo.slabsInclude"],
        settings.slabs_exclude.as_deref(),
        settings.slabs_include.as_deref(),
        None,
    )
}

/// Chips of `hwmon`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn hwmon_chips(settings: &HwmonSettings) -> Filter {
    NameFilter::new(
        ["metrics.hwmon.chipExclude", "metrics.hwmon.chipInclude"],
        settings.chip_exclude.as_deref(),
        settings.chip_include.as_deref(),
        None,
    )
}

/// Sensors of `hwmon`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn hwmon_sensors(settings: &HwmonSettings) -> Filter {
    NameFilter::new(
        ["metrics.hwmon.sensorExclude", "metrics.hwmon.sensorInclude"],
        settings.sensor_exclude.as_deref(),
        settings.sensor_include.as_deref(),
        None,
    )
}

/// Mount points of `filesystem`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn mount_points(settings: &FilesystemSettings) -> Filter {
    NameFilter::new(
        [
            "metrics.filesystem.mountPointsExclude",
            "metrics.filesystem.mountPointsInclude",
        ],
        settings.mount_points_exclude.as_deref(),
        settings.mount_points_include.as_deref(),
        Some(MOUNTS_EXCLUDED),
    )
}

/// Filesystem types of `filesystem`.
///
/// # Errors
/// As of [`NameFilter::new`].
pub fn filesystem_types(settings: &FilesystemSettings) -> Filter {
    NameFilter::new(
        [
            "metrics.filesystem.fsTypesExclude",
            "metrics.filesystem.fsTypesInclude",
        ],
        settings.fs_types_exclude.as_deref(),
        settings.fs_types_include.as_deref(),
        Some(TYPES_EXCLUDED),
    )
}

/// Timeout for mounts.
///
/// # Errors
///
/// It is zero.
pub fn mount_timeout(settings: &FilesystemSettings) -> Result<Duration, RegistryError> {
    let timeout = settings
        .mount_timeout
        .map_or(DEFAULT_MOUNT_TIMEOUT, |span| span.0);
    if timeout.is_zero() {
        return Err(RegistryError::Value {
            key: "metrics.filesystem.mountTimeout",
            reason: "must be more than 0; 5s is the default",
        });
    }
    Ok(timeout)
}

/// Fields of `vmstat`; `None` if the settings name none.
///
/// # Errors
///
/// As of [`NameFilter::new`].
pub fn vmstat(settings: &FieldsSettings) -> Result<Option<NameFilter>, RegistryError> {
    included("metrics.vmstat.fields", settings.fields.as_deref())
}

/// Flags and bugs of `cpu`; `None` if the settings name none.
///
/// # Errors
///
/// As of [`NameFilter::new`].
pub fn cpu_info(settings: &CpuSettings) -> Result<[Option<NameFilter>; 2], RegistryError> {
    let filter = |key, pattern: &Option<String>| {
        included(key, pattern.as_deref().filter(|pattern| !pattern.is_empty()))
    };
    Ok([
        filter("metrics.cpu.flagsInclude", &settings.flags_include)?,
        filter("metrics.cpu.bugsInclude", &settings.bugs_include)?,
    ])
}

/// Fields of `netstat`.
///
/// # Errors
///
/// The pattern is not a regular expression.
pub fn netstat(settings: &FieldsSettings) -> Result<Regex, RegistryError> {
    let pattern = settings.fields.as_deref().unwrap_or(NETSTAT_FIELDS);
    regex("metrics.netstat.fields", pattern, pattern)
}

/// Counters of `ethtool`; `None` if the settings name none.
///
/// # Errors
///
/// The pattern is not a regular expression.
pub fn ethtool_metrics(settings: &EthtoolSettings) -> Result<Option<Regex>, RegistryError> {
    let compile = |pattern| regex("metrics.ethtool.metricsInclude", pattern, pattern);
    settings.metrics_include.as_deref().map(compile).transpose()
}

/// Included and excluded units of `systemd`; the patterns match whole names.
///
/// # Errors
///
/// A pattern is not a regular expression.
pub fn systemd_units(settings: &SystemdSettings) -> Result<[Option<Regex>; 2], RegistryError> {
    let compile = |key, pattern: Option<&str>| {
        let pattern = pattern.filter(|pattern| !pattern.is_empty());
        let whole = |pattern| regex(key, pattern, &format!("^(?:{pattern})$"));
        pattern.map(whole).transpose()
    };
    let exclude = settings.unit_exclude.as_deref().unwrap_or(UNITS_EXCLUDED);
    Ok([
        compile("metrics.systemd.unitInclude", settings.unit_include.as_deref())?,
        compile("metrics.systemd.unitExclude", Some(exclude))?,
    ])
}

/// Returns the labels of [`IPVS_LABELS`] that the settings name, in the order of that list.
///
/// # Errors
///
/// A label is not in the list.
pub fn ipvs(settings: &IpvsSettings) -> Result<Vec<&'static str>, RegistryError> {
    let Some(wanted) = settings.backend_labels.as_deref() else {
        return Ok(IPVS_LABELS.to_vec());
    };
    let wanted = wanted.split(',').map(str::trim).filter(|name| !name.is_empty());
    if wanted.clone().any(|name| !IPVS_LABELS.contains(&name)) {
        return Err(RegistryError::Value {
            key: "metrics.ipvs.backendLabels",
            reason: "the valid labels are local_address, local_port, remote_address, remote_port, proto and local_mark",
        });
    }
    let named = |label: &&str| wanted.clone().any(|name| name == *label);
    Ok(IPVS_LABELS.into_iter().filter(named).collect())
}

fn devices(keys: [&'static str; 2], settings: &DeviceFilter, default: Option<&str>) -> Filter {
    NameFilter::new(
        keys,
        settings.device_exclude.as_deref(),
        settings.device_include.as_deref(),
        default,
    )
}

fn included(key: &'static str, pattern: Option<&str>) -> Result<Option<NameFilter>, RegistryError> {
    pattern
        .map(|pattern| NameFilter::new([key, key], None, Some(pattern), None))
        .transpose()
}

/// Compiles `expression`; `pattern` is its text in the settings.
fn regex(key: &'static str, pattern: &str, expression: &str) -> Result<Regex, RegistryError> {
    Regex::new(expression).map_err(|source| RegistryError::Pattern {
        key,
        pattern: pattern.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipvs_labels_have_a_fixed_order() {
        let names = |wanted: Option<&str>| {
            ipvs(&IpvsSettings {
                backend_labels: wanted.map(str::to_owned),
            })
        };
        assert_eq!(names(None).unwrap().len(), 6);
        assert_eq!(
            names(Some("proto, local_port,,proto")).unwrap(),
            ["local_port", "proto"]
        );
        assert!(names(Some("")).unwrap().is_empty());
        assert_eq!(
            names(Some("proto,port")).unwrap_err().key(),
            "metrics.ipvs.backendLabels"
        );
    }
}
