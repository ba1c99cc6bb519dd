//! `time`: the wall clock, the time zone, and the clock sources, e.g. kvm-clock.

use std::{path::PathBuf, sync::Arc, time::Duration};

use jiff::{Timestamp, tz::TimeZone};
use virtfleet_agent_host::{MachineCalls, Reread, Roots, Stamped, read_directory};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

struct Time {
    machine: Arc<dyn MachineCalls>,
    roots: Roots,
    zone_path: PathBuf,
    zone: Stamped<TimeZone>,
    sources: Vec<Source>,
}

/// A clock source device; usually there is one.
struct Source {
    label: String,
    available: Reread,
    current: Reread,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Time {
        machine: Arc::clone(&context.machine),
        roots: context.roots.clone(),
        zone_path: PathBuf::new(),
        zone: Stamped::new(PathBuf::new()),
        sources: Vec::new(),
    }))
}

impl Collector for Time {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let now = self.machine.realtime();
        page.gauge(
            "node_time_seconds",
            "System time in seconds since 1970.",
            now.as_secs_f64(),
        );
        self.write_zone(page, now);
        if self.sources.is_empty() {
            self.sources = sources(&self.roots);
        }
        write_sources(page, &mut self.sources);
        Ok(())
    }
}

impl Time {
    fn write_zone(&mut self, page: &mut Page, now: Duration) {
        let path = self.roots.root_file("/etc/localtime");
        if path != self.zone_path {
            self.zone = Stamped::new(&path);
            self.zone_path = path;
        }
        // If the file is missing or malformed, the C library uses UTC, and so do all programs in
        // the guest.
        let utc = TimeZone::UTC;
        let zone = self
            .zone
            .get(|tzif| TimeZone::tzif("localtime", tzif).unwrap_or(TimeZone::UTC))
            .unwrap_or(&utc);
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let info = zone.to_offset_info(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX));
        page.family(
            "node_time_zone_offset_seconds",
            "Offset of the system's time zone from UTC in seconds; east is positive.",
            MetricType::Gauge,
        )
        .sample(
            &[("time_zone", info.abbreviation())],
            f64::from(info.offset().seconds()),
        );
    }
}

fn sources(roots: &Roots) -> Vec<Source> {
    let Ok(entries) = read_directory(&roots.sys("devices/system/clocksource")) else {
        return Vec::new();
    };
    let mut dirs: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("clocksource"))
        .map(|entry| entry.path())
        .collect();
    dirs.sort_unstable();
    let source = |(index, dir): (usize, PathBuf)| Source {
        label: index.to_string(),
        available: Reread::new(dir.join("available_clocksource")).single_record(),
        current: Reread::new(dir.join("current_clocksource")).single_record(),
    };
    dirs.into_iter().enumerate().map(source).collect()
}

/// Unreadable sources are left out, so that the clock is still exported.
fn write_sources(page: &mut Page, sources: &mut [Source]) {
    let mut family = page.family(
        "node_time_clocksource_available_info",
        "Available clock sources of the kernel, always 1.",
        MetricType::Gauge,
    );
    for source in &mut *sources {
        let available = source.available.text().unwrap_or_default();
        let mut names: Vec<_> = available.split_ascii_whitespace().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            family.sample(&[("device", &source.label), ("clocksource", name)], 1.0);
        }
    }
    let mut family = page.family(
        "node_time_clocksource_current_info",
        "Current clock source of the kernel, always 1.",
        MetricType::Gauge,
    );
    for source in sources {
        let current = source.current.text().unwrap_or_default();
        if let Some(name) = current.split_ascii_whitespace().next() {
            family.sample(&[("device", &source.label), ("clocksource", name)], 1.0);
        }
    }
}
