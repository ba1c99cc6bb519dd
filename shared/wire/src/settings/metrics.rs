//! The settings of the guest's metrics: which collectors, which devices, how much.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// What is measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MetricsSettings {
    /// Which collectors are on when nothing else is said.
    pub profile: MetricsProfile,
    /// Collectors to turn on (`true`) or off (`false`) by name; others are as the profile says.
    /// `--collector.NAME` and `--no-collector.NAME` on the command line win.
    pub collectors: BTreeMap<String, bool>,
    /// How long one collector may take in a scrape before the page goes out without it, at most
    /// 45s. Default 8s; all collectors together have 1.5s more.
    pub deadline: Option<Span>,
    /// How many series one collector may write; what is beyond is left out and counted. Default
    /// 10000.
    pub max_series: Option<u32>,
    /// The same for single collectors, by name.
    pub max_series_of: BTreeMap<String, u32>,
    /// The `cpu` collector.
    pub cpu: CpuSettings,
    /// The `stat` collector.
    pub stat: StatSettings,
    /// The `filesystem` collector.
    pub filesystem: FilesystemSettings,
    /// The `diskstats` collector.
    pub diskstats: DeviceFilter,
    /// The `netdev` collector.
    pub netdev: NetdevSettings,
    /// The `netclass` collector.
    pub netclass: NetclassSettings,
    /// The `arp` collector.
    pub arp: DeviceFilter,
    /// The `ipvs` collector.
    pub ipvs: IpvsSettings,
    /// The `ethtool` collector.
    pub ethtool: EthtoolSettings,
    /// The `qdisc` collector.
    pub qdisc: DeviceFilter,
    /// The `netstat` collector.
    pub netstat: FieldsSettings,
    /// The `vmstat` collector.
    pub vmstat: FieldsSettings,
    /// The `interrupts` collector.
    pub interrupts: InterruptsSettings,
    /// The `hwmon` collector.
    pub hwmon: HwmonSettings,
    /// The `rapl` collector.
    pub rapl: RaplSettings,
    /// The `powersupplyclass` collector.
    pub powersupplyclass: IgnoredSettings,
    /// The `tapestats` collector.
    pub tapestats: IgnoredSettings,
    /// The `slabinfo` collector.
    pub slabinfo: SlabinfoSettings,
    /// The `sysctl` collector.
    pub sysctl: SysctlSettings,
    /// The `systemd` collector.
    pub systemd: SystemdSettings,
    /// The `textfile` collector.
    pub textfile: TextfileSettings,
}

/// Which collectors are on when nothing else is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsProfile {
    /// Those that node_exporter has on by default, and the agent's own.
    #[default]
    Default,
    /// These, and what the public dashboards ask for besides: processes, interrupts, systemd,
    /// tcpstat.
    Dashboards,
}

/// The `filesystem` collector. Regular expressions as node_exporter has them, with its defaults
/// when absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FilesystemSettings {
    /// Mount points to leave out. Not together with `mountPointsInclude`.
    pub mount_points_exclude: Option<String>,
    /// Mount points to take; all others are left out.
    pub mount_points_include: Option<String>,
    /// Filesystem types to leave out. Not together with `fsTypesInclude`.
    pub fs_types_exclude: Option<String>,
    /// Filesystem types to take; all others are left out.
    pub fs_types_include: Option<String>,
    /// How long a mount may take to answer before it counts as stuck. Default 5s.
    pub mount_timeout: Option<Span>,
}

/// Devices to take or to leave out, by a regular expression on their kernel name. At most one of
/// the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DeviceFilter {
    /// Devices to leave out.
    pub device_exclude: Option<String>,
    /// Devices to take; all others are left out.
    pub device_include: Option<String>,
}

/// The `netdev` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NetdevSettings {
    /// Devices to leave out. Not together with `deviceInclude`.
    pub device_exclude: Option<String>,
    /// Devices to take; all others are left out.
    pub device_include: Option<String>,
    /// Whether each device's addresses are exported as `node_network_address_info`.
    pub address_info: bool,
    /// Whether each counter has its device's alias as the label `ifalias`.
    pub label_ifalias: bool,
    /// Whether the counters have the kernel's own names, with a family for each kind of error, in
    /// the place of the names that dashboards know.
    pub detailed_metrics: bool,
}

/// The `netclass` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NetclassSettings {
    /// A regular expression of the devices that are left out; default none.
    pub ignored: Option<String>,
    /// Whether an unknown speed is left out; without it, it is -125000, as with
    /// node_exporter.
    pub ignore_invalid_speed: bool,
    /// Whether what netlink alone tells is exported, too: other names of devices, as
    /// `node_network_altnames_info`. What files tell as well is as it is without.
    pub netlink: bool,
}

/// The `ipvs` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IpvsSettings {
    /// Labels of the series of servers, with commas between them; servers that the labels do not
    /// tell apart are added up. Default all:
    /// `local_address,local_port,remote_address,remote_port,proto,local_mark`.
    pub backend_labels: Option<String>,
}

/// The `rapl` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RaplSettings {
    /// Whether all zones are in one family, `node_rapl_joules_total`, with the label `rapl_zone`;
    /// without it, each kind of zone has a family.
    pub zone_label: bool,
}

/// Devices that a collector passes over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IgnoredSettings {
    /// A regular expression of those that are left out; node_exporter's default when absent.
    pub ignored: Option<String>,
}

/// Fields of a file to take.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FieldsSettings {
    /// A regular expression of the fields that are taken; node_exporter's default when absent.
    pub fields: Option<String>,
}

/// The `cpu` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CpuSettings {
    /// Whether `node_cpu_guest_seconds_total` is exported. Default true.
    pub guest: Option<bool>,
    /// Whether `node_cpu_info` is exported.
    pub info: bool,
    /// Flags of `/proc/cpuinfo` to export, as a regular expression; needs `info`.
    pub flags_include: Option<String>,
    /// Bugs of `/proc/cpuinfo` to export, as a regular expression; needs `info`.
    pub bugs_include: Option<String>,
}

/// The `stat` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StatSettings {
    /// Whether `node_softirqs_total` is exported.
    pub softirq: bool,
}

/// The `ethtool` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EthtoolSettings {
    /// Devices to leave out. Not together with `deviceInclude`.
    pub device_exclude: Option<String>,
    /// Devices to take; all others are left out.
    pub device_include: Option<String>,
    /// A regular expression of the metrics that are taken. Default all.
    pub metrics_include: Option<String>,
}

/// The `interrupts` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct InterruptsSettings {
    /// Interrupts to leave out, by a regular expression on `type;info;devices`. Not together with
    /// `nameInclude`.
    pub name_exclude: Option<String>,
    /// Interrupts to take; all others are left out.
    pub name_include: Option<String>,
    /// Whether counters of 0 are exported. Default: of the architecture's own interrupts, and of
    /// all with `perInterrupt`.
    pub include_zeros: Option<bool>,
    /// Whether `node_interrupts_total` has a series for each interrupt on each CPU, as
    /// node_exporter has them. Without it there is one for each device on each CPU that served it.
    pub per_interrupt: bool,
}

/// The `hwmon` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HwmonSettings {
    /// Chips to leave out. Not together with `chipInclude`.
    pub chip_exclude: Option<String>,
    /// Chips to take; all others are left out.
    pub chip_include: Option<String>,
    /// Sensors to leave out, by a regular expression on `chip;sensor`. Not together with
    /// `sensorInclude`.
    pub sensor_exclude: Option<String>,
    /// Sensors to take; all others are left out.
    pub sensor_include: Option<String>,
}

/// The `slabinfo` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SlabinfoSettings {
    /// Slabs to leave out. Not together with `slabsInclude`.
    pub slabs_exclude: Option<String>,
    /// Slabs to take; all others are left out.
    pub slabs_include: Option<String>,
}

/// The `sysctl` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SysctlSettings {
    /// Numeric sysctls, e.g. `vm.swappiness`; several values in one file are named as in
    /// `kernel.pid_max:a,b`.
    pub include: Vec<String>,
    /// Sysctls whose text is exported as a label.
    pub include_info: Vec<String>,
}

/// The `systemd` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SystemdSettings {
    /// Units to leave out; node_exporter's default when absent.
    pub unit_exclude: Option<String>,
    /// Units to take. Default all. Both must agree, as with node_exporter.
    pub unit_include: Option<String>,
    /// Whether the restarts of services are exported.
    pub restarts: bool,
    /// Whether the start times of units are exported.
    pub start_times: bool,
    /// Whether the numbers of tasks of services are exported.
    pub tasks: bool,
}

/// The `textfile` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TextfileSettings {
    /// Folders whose `*.prom` files are read; `*` stands for any part of a name. None: nothing is
    /// read.
    pub directories: Vec<String>,
}
