//! Settings of the guest's metrics: collectors, devices and limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Span, removed::add_removed_keys};

/// Metrics: collectors, devices and limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(transform = add_removed_keys)]
pub struct MetricsSettings {
    /// Collectors that are on by default.
    pub profile: MetricsProfile,
    /// Collectors to turn on (`true`) or off (`false`), by name; all others follow the profile.
    /// `--collector.NAME` and `--no-collector.NAME` on the command line take precedence.
    pub collectors: BTreeMap<String, bool>,
    /// Maximum time of one collector in a scrape, at most 45s. Default 8s. After this time the page
    /// is sent without it. All collectors together have 1.5s more.
    pub deadline: Option<Span>,
    /// Maximum number of series of one collector. Further series are dropped and counted. Default
    /// 10000.
    pub max_series: Option<u32>,
    /// Maximum number of series of single collectors, by name.
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
    /// The `slabinfo` collector.
    pub slabinfo: SlabinfoSettings,
    /// The `sysctl` collector.
    pub sysctl: SysctlSettings,
    /// The `systemd` collector.
    pub systemd: SystemdSettings,
    /// The `textfile` collector.
    pub textfile: TextfileSettings,
}

/// Collectors that are on by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsProfile {
    /// The default collectors of node_exporter, and the agent's own.
    #[default]
    Default,
    /// The collectors of `default`, and those that the public dashboards also need: processes,
    /// interrupts, systemd, tcpstat.
    Dashboards,
}

/// The `filesystem` collector. The patterns are regular expressions as in node_exporter, with its
/// defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FilesystemSettings {
    /// Mount points to exclude. Not together with `mountPointsInclude`.
    pub mount_points_exclude: Option<String>,
    /// Mount points to include; all others are excluded.
    pub mount_points_include: Option<String>,
    /// Filesystem types to exclude. Not together with `fsTypesInclude`.
    pub fs_types_exclude: Option<String>,
    /// Filesystem types to include; all others are excluded.
    pub fs_types_include: Option<String>,
    /// Maximum time to wait for a mount before it counts as stuck. Default 5s.
    pub mount_timeout: Option<Span>,
}

/// Devices to include or to exclude, as a regular expression that matches their kernel name. At
/// most one of the two fields may be set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DeviceFilter {
    /// Devices to exclude.
    pub device_exclude: Option<String>,
    /// Devices to include; all others are excluded.
    pub device_include: Option<String>,
}

/// The `netdev` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NetdevSettings {
    /// Devices to exclude. Not together with `deviceInclude`.
    pub device_exclude: Option<String>,
    /// Devices to include; all others are excluded.
    pub device_include: Option<String>,
    /// Export the addresses of each device as `node_network_address_info`.
    pub address_info: bool,
    /// Add the device's alias to each counter, as the label `ifalias`.
    pub label_ifalias: bool,
    /// Use the kernel's own names of counters, with one family for each kind of error, instead of
    /// the names that dashboards use.
    pub detailed_metrics: bool,
}

/// The `netclass` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NetclassSettings {
    /// Regular expression for the devices to exclude. Default: none.
    pub ignored: Option<String>,
    /// Omit an unknown speed. Otherwise it is exported as -125000, as in node_exporter.
    pub ignore_invalid_speed: bool,
    /// Also export data that only netlink has: alternative names of devices, as
    /// `node_network_altnames_info`. Data that is also in files does not change.
    pub netlink: bool,
}

/// The `ipvs` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IpvsSettings {
    /// Labels of the series of servers, separated by commas. Servers with equal labels are added
    /// up. Default: all, `local_address,local_port,remote_address,remote_port,proto,local_mark`.
    pub backend_labels: Option<String>,
}

/// Fields of a file to export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FieldsSettings {
    /// Regular expression for the fields to export. Default: that of node_exporter.
    pub fields: Option<String>,
}

/// The `cpu` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CpuSettings {
    /// Export `node_cpu_guest_seconds_total`. Default true.
    pub guest: Option<bool>,
    /// Export `node_cpu_info`.
    pub info: bool,
    /// Regular expression for the flags of `/proc/cpuinfo` to export. Needs `info`.
    pub flags_include: Option<String>,
    /// Regular expression for the bugs of `/proc/cpuinfo` to export. Needs `info`.
    pub bugs_include: Option<String>,
}

/// The `stat` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StatSettings {
    /// Export `node_softirqs_total`.
    pub softirq: bool,
}

/// The `ethtool` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EthtoolSettings {
    /// Devices to exclude. Not together with `deviceInclude`.
    pub device_exclude: Option<String>,
    /// Devices to include; all others are excluded.
    pub device_include: Option<String>,
    /// Regular expression for the metrics to export. Default: all.
    pub metrics_include: Option<String>,
}

/// The `interrupts` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct InterruptsSettings {
    /// Interrupts to exclude, as a regular expression that matches `type;info;devices`. Not
    /// together with `nameInclude`.
    pub name_exclude: Option<String>,
    /// Interrupts to include; all others are excluded.
    pub name_include: Option<String>,
    /// Export counters that are 0. Default: only those of the architecture's own interrupts; with
    /// `perInterrupt`, all.
    pub include_zeros: Option<bool>,
    /// Export `node_interrupts_total` with one series per interrupt and CPU, as node_exporter does.
    /// Otherwise there is one series per device and CPU that handled its interrupts.
    pub per_interrupt: bool,
}

/// The `hwmon` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HwmonSettings {
    /// Chips to exclude. Not together with `chipInclude`.
    pub chip_exclude: Option<String>,
    /// Chips to include; all others are excluded.
    pub chip_include: Option<String>,
    /// Sensors to exclude, as a regular expression that matches `chip;sensor`. Not together with
    /// `sensorInclude`.
    pub sensor_exclude: Option<String>,
    /// Sensors to include; all others are excluded.
    pub sensor_include: Option<String>,
}

/// The `slabinfo` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SlabinfoSettings {
    /// Slabs to exclude. Not together with `slabsInclude`.
    pub slabs_exclude: Option<String>,
    /// Slabs to include; all others are excluded.
    pub slabs_include: Option<String>,
}

/// The `sysctl` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SysctlSettings {
    /// Numeric sysctls to export, e.g. `vm.swappiness`. Name several values of one file as in
    /// `kernel.pid_max:a,b`.
    pub include: Vec<String>,
    /// Sysctls whose text is exported as a label.
    pub include_info: Vec<String>,
}

/// The `systemd` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SystemdSettings {
    /// Units to exclude. Default: that of node_exporter.
    pub unit_exclude: Option<String>,
    /// Units to include. Default: all. A unit is exported if both expressions permit it, as in
    /// node_exporter.
    pub unit_include: Option<String>,
    /// Export the number of restarts of services.
    pub restarts: bool,
    /// Export the start times of units.
    pub start_times: bool,
    /// Export the number of tasks of services.
    pub tasks: bool,
}

/// The `textfile` collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TextfileSettings {
    /// Directories whose `*.prom` files are read; `*` matches any part of a name. Empty: no file is
    /// read.
    pub directories: Vec<String>,
}
