//! `guest_cgroups`: resource usage and pressure of pods and services, from the unified hierarchy
//! (cgroup v2; kernel: `Documentation/admin-guide/cgroup-v2.rst`). Only `kubepods`, `system.slice`
//! and their direct children.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::procfs::{pairs::pairs, pressure::pressure};
use virtfleet_agent_host::{Roots, exists, is_directory, read_once};
use virtfleet_wire::exposition::{MetricType, Page};

use super::files;
use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Cgroups that are exported with their children: pods with systemd's driver, pods with kubelet's
/// own driver, and services.
const PARENTS: [&str; 3] = ["kubepods.slice", "kubepods", "system.slice"];
/// Maximum number of children of one of them.
const MAX_CHILDREN: usize = 128;
/// Maximum size of a cgroup's file in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;
const RESOURCES: [&str; 4] = ["cpu", "memory", "io", "irq"];

/// A family with one series per cgroup.
struct CgroupFamily {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    of: fn(&Row) -> Option<f64>,
}

static FAMILIES: [CgroupFamily; 8] = [
    CgroupFamily {
        name: "virtfleet_guest_cgroup_cpu_seconds_total",
        help: "CPU time used by a cgroup.",
        kind: MetricType::Counter,
        of: |row| row.cpu_us.map(seconds),
    },
    CgroupFamily {
        name: "virtfleet_guest_cgroup_cpu_throttled_seconds_total",
        help: "Time for which a cgroup was throttled by its CPU limit.",
        kind: MetricType::Counter,
        of: |row| row.throttled_us.map(seconds),
    },
    CgroupFamily {
        name: "virtfleet_guest_cgroup_memory_bytes",
        help: "Memory used by a cgroup, including its page cache.",
        kind: MetricType::Gauge,
        of: |row| row.memory.map(number),
    },
    CgroupFamily {
        name: "virtfleet_guest_cgroup_memory_limit_bytes",
        help: "Memory limit of a cgroup, if it has one.",
        kind: MetricType::Gauge,
        of: |row| row.memory_limit.map(number),
    },
    CgroupFamily {
        name: "virtfleet_guest_cgroup_swap_bytes",
        help: "Swap used by a cgroup.",
        kind: MetricType::Gauge,
        of: |row| row.swap.map(number),
    },
    CgroupFamily {
        name: "virtfleet_guest_cgroup_oom_kills_total",
        help: "Processes of a cgroup and its descendants that were killed by the OOM killer.",
        kind: MetricType::Counter,
        of: |row| row.oom_kills.map(number),
    },
    CgroupFamily {
        name: "virtfleet_guest_cgroup_oom_total",
        help: "Number of times that a cgroup or a descendant was out of memory at its limit.",
        kind: MetricType::Counter,
        of: |row| row.ooms.map(number),
    },
    CgroupFamily {
        name: "virtfleet_guest_cgroup_tasks",
        help: "Processes and threads of a cgroup and its descendants.",
        kind: MetricType::Gauge,
        of: |row| row.tasks.map(number),
    },
];

fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

fn number(value: u64) -> f64 {
    value as f64
}

/// Values of a cgroup.
#[derive(Debug, Clone, Default, PartialEq)]
struct Row {
    name: String,
    cpu_us: Option<u64>,
    throttled_us: Option<u64>,
    memory: Option<u64>,
    memory_limit: Option<u64>,
    swap: Option<u64>,
    oom_kills: Option<u64>,
    ooms: Option<u64>,
    tasks: Option<u64>,
    /// Pressure by resource: some, full.
    pressure: [(Option<u64>, Option<u64>); RESOURCES.len()],
}

struct Cgroups {
    roots: Roots,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Cgroups {
        roots: context.roots.clone(),
        buffer: Vec::new(),
    }))
}

impl Collector for Cgroups {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let top = self.roots.sys("fs/cgroup");
        if !exists(&top.join("cgroup.controllers")) {
            return Err(CollectError::no_data("there is no unified hierarchy of cgroups"));
        }
        let mut rows = Vec::new();
        let mut skipped = Skipped::default();
        let mut left_out = 0;
        for parent in PARENTS {
            let path = top.join(parent);
            let mut children = files::folders(&path);
            if children.is_empty() && !is_directory(&path) {
                continue;
            }
            left_out += children.len().saturating_sub(MAX_CHILDREN);
            children.truncate(MAX_CHILDREN);
            rows.extend(self.row(path.clone(), parent.to_owned(), &mut skipped));
            for child in children {
                rows.extend(self.row(path.join(&child), format!("{parent}/{child}"), &mut skipped));
            }
        }
        if rows.is_empty() {
            return Err(CollectError::no_data("there are no cgroups of pods or services"));
        }
        write(page, &rows);
        page.gauge(
            "virtfleet_guest_cgroups_left_out",
            "Cgroups that are not exported because there are too many.",
            left_out as f64,
        );
        skipped.end()
    }
}

impl Cgroups {
    /// The values of the cgroup in the directory `path`. `None` if it is gone. Values that the
    /// kernel or its controllers do not provide are missing.
    fn row(&mut self, mut path: PathBuf, name: String, skipped: &mut Skipped) -> Option<Row> {
        let mut row = Row {
            name,
            ..Row::default()
        };
        let mut there = false;
        let mut read = |file: &str, take: &mut dyn FnMut(&Path, &str, &mut Skipped)| {
            path.push(file);
            match read_once(&path, &mut self.buffer, MAX_FILE_BYTES) {
                Ok(bytes) => {
                    there = true;
                    take(&path, &String::from_utf8_lossy(bytes), skipped);
                }
                // The controller is disabled, the cgroup is gone (ENODEV), or pressure is disabled
                // (EOPNOTSUPP).
                Err(virtfleet_agent_host::RereadError::Io { .. }) => {}
                Err(error) => drop(skipped.take::<()>(Err(error))),
            }
            path.pop();
        };
        read("cpu.stat", &mut |path, text, skipped| {
            for pair in skipped.valid(path, pairs(text)) {
                match pair {
                    ("usage_usec", value) => row.cpu_us = Some(value),
                    ("throttled_usec", value) => row.throttled_us = Some(value),
                    _ => {}
                }
            }
        });
        read("memory.events", &mut |path, text, skipped| {
            for pair in skipped.valid(path, pairs(text)) {
                match pair {
                    ("oom", value) => row.ooms = Some(value),
                    ("oom_kill", value) => row.oom_kills = Some(value),
                    _ => {}
                }
            }
        });
        for (file, slot) in [
            ("memory.current", &mut row.memory),
            ("memory.max", &mut row.memory_limit),
            ("memory.swap.current", &mut row.swap),
            ("pids.current", &mut row.tasks),
        ] {
            read(file, &mut |path, text, skipped| {
                *slot = skipped.take(limited(path, text)).flatten();
            });
        }
        for (resource, slot) in RESOURCES.iter().zip(&mut row.pressure) {
            let file = match *resource {
                "cpu" => "cpu.pressure",
                "memory" => "memory.pressure",
                "io" => "io.pressure",
                _ => "irq.pressure",
            };
            read(file, &mut |path, text, skipped| {
                let pressure = pressure(text, skipped.of(path));
                *slot = (pressure.some_us, pressure.full_us);
            });
        }
        there.then_some(row)
    }
}

/// A number; `None` for `max`.
fn limited(path: &Path, text: &str) -> Result<Option<u64>, CollectError> {
    match text.trim() {
        "max" => Ok(None),
        text => text.parse().map(Some).map_err(|error| {
            CollectError::because(
                format!("{} contains neither a number nor max", path.display()),
                error,
            )
        }),
    }
}

fn write(page: &mut Page, rows: &[Row]) {
    for plain in &FAMILIES {
        let mut family = page.family(plain.name, plain.help, plain.kind);
        for row in rows {
            if let Some(value) = (plain.of)(row) {
                family.sample(&[("cgroup", &row.name)], value);
            }
        }
    }
    for (all, name, help) in [
        (
            false,
            "virtfleet_guest_cgroup_pressure_waiting_seconds_total",
            "Time for which at least one task of a cgroup waited for a resource.",
        ),
        (
            true,
            "virtfleet_guest_cgroup_pressure_stalled_seconds_total",
            "Time for which all tasks of a cgroup waited for a resource.",
        ),
    ] {
        let mut family = page.family(name, help, MetricType::Counter);
        for row in rows {
            for (resource, (some, full)) in RESOURCES.iter().zip(row.pressure) {
                if let Some(value) = if all { full } else { some } {
                    family.sample(&[("cgroup", &row.name), ("resource", resource)], seconds(value));
                }
            }
        }
    }
}
