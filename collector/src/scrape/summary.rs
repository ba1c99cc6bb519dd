//! Summarizes a metrics page line by line while it arrives: memory for one line is enough for a
//! page of any size.

use std::collections::HashSet;

use virtfleet_collector_core::{
    mla::page_rules::is_withheld, pull_result::MetricsSummary, queue_traffic::QueueTotals,
    usage::UsageCounters,
};
use virtfleet_wire::exposition::{Line, LineError, Sample};

use super::{line_reader::LineReader, queues::QueueReader, usage::UsageReader};

/// Maximum number of CPUs to count: a hostile page must not grow the set without limit.
const MAX_CPUS: usize = 4096;
/// Maximum length of a CPU's name that is counted; the kernel's names are numbers.
const MAX_CPU_NAME_BYTES: usize = 16;

/// State of the page being read.
#[derive(Debug, Default)]
pub(super) struct Summary {
    metrics: MetricsSummary,
    cpus: HashSet<String>,
    usage: UsageReader,
    queues: QueueReader,
    lines: LineReader,
}

impl Summary {
    /// Reads the next piece. `parse` parses a line, and may do more with it.
    ///
    /// # Errors
    /// The line's number and what is malformed.
    pub(super) fn take(
        &mut self,
        piece: &[u8],
        mut parse: impl for<'text> FnMut(&'text str) -> Result<Line<'text>, LineError>,
    ) -> Result<(), String> {
        let mut lines = std::mem::take(&mut self.lines);
        let taken = lines.take(piece, |text| {
            self.read(&parse(text)?);
            Ok(())
        });
        self.lines = lines;
        taken
    }

    /// Returns the summary and the counters at the end of the page; `parse` gets the last line, if
    /// it has no line feed.
    pub(super) fn finish(
        mut self,
        mut parse: impl for<'text> FnMut(&'text str) -> Result<Line<'text>, LineError>,
    ) -> Result<(MetricsSummary, UsageCounters, Box<[QueueTotals]>), String> {
        let mut lines = std::mem::take(&mut self.lines);
        lines.finish(|text| {
            self.read(&parse(text)?);
            Ok(())
        })?;
        if self.metrics.samples == 0 {
            return Err("the page has no sample".to_owned());
        }
        self.metrics.cpus = self.cpus.len() as u64;
        Ok((self.metrics, self.usage.counters(), self.queues.counters()))
    }

    fn read(&mut self, line: &Line<'_>) {
        if let Line::Sample(sample) = line {
            self.sample(sample);
        }
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        self.metrics.samples += 1;
        if is_withheld(sample) {
            self.metrics.reserved_samples += 1;
            return;
        }
        self.usage.read(sample);
        self.queues.read(sample);
        match sample.name {
            "node_memory_MemTotal_bytes" => self.metrics.memory_total_bytes = Some(sample.value),
            "node_memory_MemAvailable_bytes" => self.metrics.memory_available_bytes = Some(sample.value),
            "node_load1" => self.metrics.load1 = Some(sample.value),
            "node_boot_time_seconds" => self.metrics.boot_time_seconds = Some(sample.value),
            "node_timex_sync_status" => self.metrics.clock_synchronised = Some(sample.value > 0.0),
            "virtfleet_agent_collector_failed" => self.metrics.failed_collectors += 1,
            "node_cpu_seconds_total" => {
                let cpu = sample
                    .labels
                    .clone()
                    .filter_map(Result::ok)
                    .find(|(name, _)| *name == "cpu");
                if let Some((_, cpu)) = cpu
                    && cpu.len() <= MAX_CPU_NAME_BYTES
                    && self.cpus.len() < MAX_CPUS
                    && !self.cpus.contains(cpu.as_ref())
                {
                    self.cpus.insert(cpu.into_owned());
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::exposition::parse_line;

    use super::*;

    const PAGE: &str = "# TYPE node_cpu_seconds_total counter\nnode_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 1\n\
        node_cpu_seconds_total{cpu=\"0\",mode=\"user\"} 1\nnode_cpu_seconds_total{cpu=\"1\",mode=\"user\"} 1\n\
        node_memory_MemTotal_bytes 4e9\nnode_scrape_collector_success{collector=\"zfs\"} 0\n\
        virtfleet_agent_collector_failed{collector=\"os\"} 1\nnode_load1 0.5\n\
        virtfleet_vm_placement_info{zone=\"z\"} 1\nup 1\nnode_load1{__name__=\"x\"} 9";

    #[test]
    fn pieces_may_end_anywhere() {
        for size in [1, 2, 7, 64, PAGE.len()] {
            let mut summary = Summary::default();
            for piece in PAGE.as_bytes().chunks(size) {
                summary.take(piece, parse_line).unwrap();
            }
            let (metrics, ..) = summary.finish(parse_line).unwrap();
            assert_eq!(
                (
                    metrics.samples,
                    metrics.cpus,
                    metrics.failed_collectors,
                    metrics.reserved_samples
                ),
                (10, 2, 1, 3)
            );
            assert_eq!(
                (metrics.memory_total_bytes, metrics.load1),
                (Some(4e9), Some(0.5))
            );
        }
    }

    #[test]
    fn names_of_a_hostile_page_use_no_memory() {
        let mut summary = Summary::default();
        let long = "x".repeat(MAX_CPU_NAME_BYTES + 1);
        summary
            .take(
                format!("node_cpu_seconds_total{{cpu=\"{long}\"}} 1\n").as_bytes(),
                parse_line,
            )
            .unwrap();
        assert_eq!(summary.finish(parse_line).unwrap().0.cpus, 0);
    }

    #[test]
    fn malformed_pages_are_rejected_with_the_line() {
        let read = |text: &[u8]| {
            let mut summary = Summary::default();
            summary
                .take(text, parse_line)
                .and_then(|()| summary.finish(parse_line))
                .unwrap_err()
        };
        assert!(read(b"a 1\n<html>\n").starts_with("line 2: "));
        assert!(read(b"a 1\n\xff\xfe 1\n").starts_with("line 2 is not UTF-8"));
        assert!(read(b"# only comments\n").contains("no sample"));
        assert!(read(&vec![b'a'; 64 * 1024 + 1]).starts_with("line 1 is longer"));
    }
}
