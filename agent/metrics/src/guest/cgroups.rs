//! `guest_cgroups`: what pods and services as a whole use and wait for, from the unified hierarchy (cgroup v2; kernel:
//! `Documentation/admin-guide/cgroup-v2.rst`). Only `kubepods`, `system.slice` and their direct children.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::procfs::{pairs::pairs, pressure::pressure};
use virtfleet_agent_host::{Roots, exists, is_directory, slurp};
use virtfleet_wire::exposition::{MetricType, Page};

use super::files;
use crate::{CollectError, Collector, Context, RegistryError};

/// What is looked at with its children: pods with systemd's driver, with kubelet's own, and services.
const PARENTS: [&str; 3] = ["kubepods.slice", "kubepods", "system.slice"];
/// Children of one of them at the most.
const MOST: usize = 128;
/// A file of a cgroup has a few lines.
const LIMIT: usize = 64 << 10;
const RESOURCES: [&str; 4] = ["cpu", "memory", "io", "irq"];

/// A family with one series for each cgroup.
struct Plain {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    of: fn(&Row) -> Option<f64>,
}

static PLAIN: [Plain; 8] = [
    Plain {
        name: "virtfleet_guest_cgroup_cpu_seconds_total",
        help: "CPU time that a cgroup used.",
        kind: MetricType::Counter,
        of: |row| row.cpu_us.map(seconds),
    },
    Plain {
        name: "virtfleet_guest_cgroup_cpu_throttled_seconds_total",
        help: "How long a cgroup was held back by its CPU limit.",
        kind: MetricType::Counter,
        of: |row| row.throttled_us.map(seconds),
    },
    Plain {
        name: "virtfleet_guest_cgroup_memory_bytes",
        help: "Memory that a cgroup uses, its page cache included.",
        kind: MetricType::Gauge,
        of: |row| row.memory.map(number),
    },
    Plain {
        name: "virtfleet_guest_cgroup_memory_limit_bytes",
        help: "Memory that a cgroup may use, where there is a limit.",
        kind: MetricType::Gauge,
        of: |row| row.memory_limit.map(number),
    },
    Plain {
        name: "virtfleet_guest_cgroup_swap_bytes",
        help: "Swap that a cgroup uses.",
        kind: MetricType::Gauge,
        of: |row| row.swap.map(number),
    },
    Plain {
        name: "virtfleet_guest_cgroup_oom_kills_total",
        help: "Processes of a cgroup and those below it that were killed for want of memory.",
        kind: MetricType::Counter,
        of: |row| row.oom_kills.map(number),
    },
    Plain {
        name: "virtfleet_guest_cgroup_oom_total",
        help: "How often a cgroup or one below it reached its memory limit and had nothing to give back.",
        kind: MetricType::Counter,
        of: |row| row.ooms.map(number),
    },
    Plain {
        name: "virtfleet_guest_cgroup_tasks",
        help: "Processes and threads of a cgroup and those below it.",
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

/// What a cgroup says.
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
    /// By resource: waited for by some, and by all.
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
        let mut left_out = 0;
        for parent in PARENTS {
            let path = top.join(parent);
            let mut children = files::folders(&path);
            if children.is_empty() && !is_directory(&path) {
                continue;
            }
            left_out += children.len().saturating_sub(MOST);
            children.truncate(MOST);
            rows.extend(self.row(path.clone(), parent.to_owned())?);
            for child in children {
                rows.extend(self.row(path.join(&child), format!("{parent}/{child}"))?);
            }
        }
        if rows.is_empty() {
            return Err(CollectError::no_data(
                "there are neither pods nor services in cgroups",
            ));
        }
        write(page, &rows);
        page.gauge(
            "virtfleet_guest_cgroups_left_out",
            "Cgroups that are not exported, because there are too many.",
            left_out as f64,
        );
        Ok(())
    }
}

impl Cgroups {
    /// What the cgroup in the folder `path` says; none when it is gone, and less where the kernel or its controllers say less.
    fn row(&mut self, mut path: PathBuf, name: String) -> Result<Option<Row>, CollectError> {
        let mut row = Row {
            name,
            ..Row::default()
        };
        let mut there = false;
        let mut read = |file: &str, take: &mut dyn FnMut(&Path, &str) -> Result<(), CollectError>| {
            path.push(file);
            let result = match slurp(&path, &mut self.buffer, LIMIT) {
                Ok(bytes) => {
                    there = true;
                    take(&path, &String::from_utf8_lossy(bytes))
                }
                // The controller is off, or the cgroup went away (ENODEV), or pressure is off (EOPNOTSUPP).
                Err(virtfleet_agent_host::RereadError::Io { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            };
            path.pop();
            result
        };
        read("cpu.stat", &mut |path, text| {
            for pair in pairs(text) {
                match pair.map_err(CollectError::parse(path))? {
                    ("usage_usec", value) => row.cpu_us = Some(value),
                    ("throttled_usec", value) => row.throttled_us = Some(value),
                    _ => {}
                }
            }
            Ok(())
        })?;
        read("memory.events", &mut |path, text| {
            for pair in pairs(text) {
                match pair.map_err(CollectError::parse(path))? {
                    ("oom", value) => row.ooms = Some(value),
                    ("oom_kill", value) => row.oom_kills = Some(value),
                    _ => {}
                }
            }
            Ok(())
        })?;
        for (file, slot) in [
            ("memory.current", &mut row.memory),
            ("memory.max", &mut row.memory_limit),
            ("memory.swap.current", &mut row.swap),
            ("pids.current", &mut row.tasks),
        ] {
            read(file, &mut |path, text| {
                *slot = limited(path, text)?;
                Ok(())
            })?;
        }
        for (resource, slot) in RESOURCES.iter().zip(&mut row.pressure) {
            let file = match *resource {
                "cpu" => "cpu.pressure",
                "memory" => "memory.pressure",
                "io" => "io.pressure",
                _ => "irq.pressure",
            };
            read(file, &mut |path, text| {
                let pressure = pressure(text).map_err(CollectError::parse(path))?;
                *slot = (pressure.some_us, pressure.full_us);
                Ok(())
            })?;
        }
        Ok(there.then_some(row))
    }
}

/// A number; none for `max`.
fn limited(path: &Path, text: &str) -> Result<Option<u64>, CollectError> {
    match text.trim() {
        "max" => Ok(None),
        text => text.parse().map(Some).map_err(|error| {
            CollectError::because(
                format!("{} holds neither a number nor max", path.display()),
                error,
            )
        }),
    }
}

fn write(page: &mut Page, rows: &[Row]) {
    for plain in &PLAIN {
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
            "How long at least one task of a cgroup waited for a resource.",
        ),
        (
            true,
            "virtfleet_guest_cgroup_pressure_stalled_seconds_total",
            "How long no task of a cgroup could go on for want of a resource.",
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
