//! `tapestats`: statistics of tape drives, from `/sys/class/scsi_tape`.

use std::path::Path;

use virtfleet_agent_core::settings::{NameFilter, filters};
use virtfleet_agent_host::{Attribute, AttributeBuffer, Devices, attribute_buffer};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped, attributes::number};

/// A file below `stats`, its family, HELP, type and divisor.
struct Statistic(&'static str, &'static str, &'static str, MetricType, f64);

/// Times are in nanoseconds.
const NS: f64 = 1e9;

#[rustfmt::skip]
static STATISTICS: [Statistic; 10] = [
    Statistic("in_flight", "node_tape_io_now", "Number of I/Os in progress.", MetricType::Gauge, 1.0),
    Statistic("io_ns", "node_tape_io_time_seconds_total", "Time spent on all I/O, including tape movement.", MetricType::Counter, NS),
    Statistic("other_cnt", "node_tape_io_others_total", "I/Os that were neither reads nor writes.", MetricType::Counter, 1.0),
    Statistic("read_byte_cnt", "node_tape_read_bytes_total", "Bytes read.", MetricType::Counter, 1.0),
    Statistic("read_cnt", "node_tape_reads_completed_total", "Reads.", MetricType::Counter, 1.0),
    Statistic("read_ns", "node_tape_read_time_seconds_total", "Time spent on reads.", MetricType::Counter, NS),
    Statistic("resid_cnt", "node_tape_residual_total", "Reads and writes that transferred less than requested.", MetricType::Counter, 1.0),
    Statistic("write_byte_cnt", "node_tape_written_bytes_total", "Bytes written.", MetricType::Counter, 1.0),
    Statistic("write_cnt", "node_tape_writes_completed_total", "Writes.", MetricType::Counter, 1.0),
    Statistic("write_ns", "node_tape_write_time_seconds_total", "Time spent on writes.", MetricType::Counter, NS),
];

struct Tapes {
    drives: Devices<Drive>,
    filter: NameFilter,
    buffer: Box<AttributeBuffer>,
}

struct Drive {
    files: [Attribute; STATISTICS.len()],
    now: [Option<u64>; STATISTICS.len()],
}

impl Drive {
    fn new(path: &Path) -> Self {
        let files = STATISTICS.each_ref();
        Self {
            files: files.map(|statistic| Attribute::new(path.join("stats").join(statistic.0))),
            now: [None; STATISTICS.len()],
        }
    }
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.tapestats;
    Ok(Box::new(Tapes {
        drives: Devices::new(context.roots.sys("class/scsi_tape")),
        filter: filters::tapestats(settings)?,
        buffer: attribute_buffer(),
    }))
}

impl Collector for Tapes {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        // A drive also has other nodes for its modes: `nst0`, `st0a`.
        let is_drive = |name: &str| {
            let number = name.strip_prefix("st").unwrap_or_default();
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        };
        match self.drives.refresh(is_drive, |_, path| Drive::new(path)) {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("this kernel has no tape driver loaded"));
            }
            done => done?,
        };
        let mut skipped = Skipped::default();
        for drive in self.drives.all() {
            let Drive { files, now } = &mut drive.kept;
            *now = [None; STATISTICS.len()];
            if self.filter.takes(&drive.name) {
                for (now, file) in now.iter_mut().zip(files) {
                    *now = number(file, &mut self.buffer, &mut skipped);
                }
            }
        }
        for (index, Statistic(_, name, help, kind, divisor)) in STATISTICS.iter().enumerate() {
            let mut family = page.family(name, help, *kind);
            for drive in self.drives.held() {
                if let Some(value) = drive.kept.now[index] {
                    family.sample(&[("device", &drive.name)], value as f64 / divisor);
                }
            }
        }
        skipped.end()
    }
}
