//! `pressure`: pressure stall information, from `/proc/pressure`. Totals only; Prometheus computes
//! averages.

use virtfleet_agent_core::procfs::pressure::{Pressure, pressure};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::Page;

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// A line of a resource's file and its family.
struct Line {
    name: &'static str,
    help: &'static str,
    of: fn(&Pressure) -> Option<u64>,
}

/// The lines of each resource that node_exporter exports. An existing file must contain all of
/// them.
static RESOURCES: [(&str, &[Line]); 4] = [
    (
        "cpu",
        &[Line {
            name: "node_pressure_cpu_waiting_seconds_total",
            help: "Seconds in which at least one task waited for a CPU.",
            of: |pressure| pressure.some_us,
        }],
    ),
    (
        "io",
        &[
            Line {
                name: "node_pressure_io_waiting_seconds_total",
                help: "Seconds in which at least one task waited for I/O.",
                of: |pressure| pressure.some_us,
            },
            Line {
                name: "node_pressure_io_stalled_seconds_total",
                help: "Seconds in which all tasks waited for I/O.",
                of: |pressure| pressure.full_us,
            },
        ],
    ),
    (
        "memory",
        &[
            Line {
                name: "node_pressure_memory_waiting_seconds_total",
                help: "Seconds in which at least one task waited for memory.",
                of: |pressure| pressure.some_us,
            },
            Line {
                name: "node_pressure_memory_stalled_seconds_total",
                help: "Seconds in which all tasks waited for memory.",
                of: |pressure| pressure.full_us,
            },
        ],
    ),
    (
        "irq",
        &[Line {
            name: "node_pressure_irq_stalled_seconds_total",
            help: "Seconds in which all tasks were stalled by interrupts.",
            of: |pressure| pressure.full_us,
        }],
    ),
];

struct PressureStall(Vec<(Reread, &'static [Line])>);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let dir = context.roots.proc("pressure");
    let files = RESOURCES.map(|(resource, lines)| (Reread::new(dir.join(resource)).single_record(), lines));
    Ok(Box::new(PressureStall(files.into())))
}

impl Collector for PressureStall {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut found = false;
        let mut skipped = Skipped::default();
        for (file, lines) in &mut self.0 {
            let path = file.path().to_owned();
            let text = match file.text() {
                // No PSI (kernel before 4.20, or not built in); irq requires 6.1.
                Err(error) if error.is_missing() => continue,
                // Since 6.14, where the time of interrupts is not counted (kernel/sched/psi.c).
                Err(error) if error.is_unsupported() && found => continue,
                Err(error) if error.is_unsupported() => {
                    return Err(CollectError::no_data(
                        "pressure stall information is off; the kernel parameter psi=1 enables it",
                    ));
                }
                text => text?,
            };
            let mut malformed = false;
            let pressure = {
                let mut bad = skipped.of(&path);
                pressure(&text, |error| {
                    malformed = true;
                    bad(error);
                })
            };
            for line in *lines {
                let value = (line.of)(&pressure);
                if value.is_none() && malformed {
                    // Counted above.
                    continue;
                }
                let microseconds =
                    value.ok_or_else(|| CollectError::failed(format!("{} lacks a line", path.display())));
                if let Some(microseconds) = skipped.take(microseconds) {
                    page.counter(line.name, line.help, microseconds as f64 / 1e6);
                }
            }
            found = true;
        }
        if found {
            return skipped.end();
        }
        Err(CollectError::no_data(
            "this kernel has no pressure stall information",
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_host::Roots;
    use virtfleet_wire::settings::MetricsSettings;

    use super::*;

    #[test]
    fn a_malformed_line_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pressure")).unwrap();
        let roots = Roots {
            procfs: dir.path().into(),
            ..Roots::default()
        };
        let mut collector = new(&Context::new(roots, MetricsSettings::default())).unwrap();
        for (text, reason) in [
            ("some total=x\nfull total=5000000\n", "line 1"),
            ("full total=5000000\n", "lacks a line"),
        ] {
            fs::write(dir.path().join("pressure/io"), text).unwrap();
            let mut page = Page::new();
            let error = collector.collect(&mut page).unwrap_err().to_string();
            assert!(error.starts_with("1 entry") && error.contains(reason), "{error}");
            let text = page.to_text();
            assert!(
                text.contains("\nnode_pressure_io_stalled_seconds_total 5\n"),
                "{text}"
            );
        }
    }
}
