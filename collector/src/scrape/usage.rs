//! Reads the counters of CPU use and pressure from a metrics page.

use virtfleet_collector_core::usage::{CpuCounters, UsageCounters};
use virtfleet_wire::exposition::Sample;

/// Sums of the page being read, in seconds.
#[derive(Debug, Default)]
pub(super) struct UsageReader {
    cpu: Option<CpuSeconds>,
    cpu_waiting: Option<f64>,
    memory_waiting: Option<f64>,
    io_waiting: Option<f64>,
}

#[derive(Debug, Default)]
struct CpuSeconds {
    total: f64,
    idle: f64,
    steal: f64,
}

impl UsageReader {
    /// Reads a sample of any family.
    pub(super) fn read(&mut self, sample: &Sample<'_>) {
        match sample.name {
            "node_cpu_seconds_total" => {
                let mut labels = sample.labels.clone().filter_map(Result::ok);
                let mode = labels.find(|(name, _)| *name == "mode");
                let cpu = self.cpu.get_or_insert_default();
                cpu.total += sample.value;
                match mode.as_ref().map(|(_, mode)| &**mode) {
                    Some("idle" | "iowait") => cpu.idle += sample.value,
                    Some("steal") => cpu.steal += sample.value,
                    _ => {}
                }
            }
            "node_pressure_cpu_waiting_seconds_total" => self.cpu_waiting = Some(sample.value),
            "node_pressure_memory_waiting_seconds_total" => self.memory_waiting = Some(sample.value),
            "node_pressure_io_waiting_seconds_total" => self.io_waiting = Some(sample.value),
            _ => {}
        }
    }

    /// The counters of the whole page.
    pub(super) fn counters(&self) -> UsageCounters {
        UsageCounters {
            cpu: self.cpu.as_ref().map(|cpu| CpuCounters {
                total_ms: wrapped_ms(cpu.total),
                idle_ms: wrapped_ms(cpu.idle),
                steal_ms: wrapped_ms(cpu.steal),
            }),
            cpu_waiting_ms: self.cpu_waiting.map(wrapped_ms),
            memory_waiting_ms: self.memory_waiting.map(wrapped_ms),
            io_waiting_ms: self.io_waiting.map(wrapped_ms),
        }
    }
}

/// Seconds in milliseconds, of which the lower 32 bits are kept; 0 for a value that is no time.
fn wrapped_ms(seconds: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the first cast saturates, and the second wraps on purpose"
    )]
    let ms = (seconds * 1000.0) as u64 as u32;
    ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use virtfleet_wire::exposition::{Line, parse_line};

    #[test]
    fn counters_are_sums_over_all_cpus() {
        let page = "node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 10.5\n\
            node_cpu_seconds_total{cpu=\"0\",mode=\"user\"} 4\n\
            node_cpu_seconds_total{cpu=\"1\",mode=\"iowait\"} 1\n\
            node_cpu_seconds_total{cpu=\"1\",mode=\"steal\"} 2\n\
            node_pressure_io_waiting_seconds_total 4294968\n\
            node_pressure_memory_waiting_seconds_total -1";
        let mut reader = UsageReader::default();
        for line in page.lines() {
            if let Line::Sample(sample) = parse_line(line).unwrap() {
                reader.read(&sample);
            }
        }
        let found = reader.counters();
        let cpu = found.cpu.unwrap();
        assert_eq!((cpu.total_ms, cpu.idle_ms, cpu.steal_ms), (17_500, 11_500, 2_000));
        assert_eq!((found.cpu_waiting_ms, found.memory_waiting_ms), (None, Some(0)));
        assert_eq!(found.io_waiting_ms, Some(704), "the lower 32 bits");
        assert_eq!(UsageReader::default().counters(), UsageCounters::default());
    }
}
