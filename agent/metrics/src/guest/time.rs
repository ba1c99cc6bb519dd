//! `guest_time`: the time synchronization service, whether it has set the clock, and the offset
//! from the hardware clock.

use virtfleet_agent_host::{MachineCalls, Reread, Roots, exists, try_exists};
use virtfleet_wire::exposition::{MetricType, Page};

use std::sync::Arc;

use super::files;
use crate::{CollectError, Collector, Context, RegistryError};

/// Time synchronization services, each with files that exist only while it runs.
const SERVICES: [(&str, &[&str]); 3] = [
    ("systemd-timesyncd", &["/run/systemd/timesync"]),
    (
        "chrony",
        &[
            "/run/chrony/chronyd.pid",
            "/run/chronyd.pid",
            "/run/chrony/chronyd.sock",
        ],
    ),
    (
        "ntpd",
        &["/run/ntpd.pid", "/run/ntpd/ntpd.pid", "/run/openntpd.pid"],
    ),
];
/// Maximum number of hardware clocks.
const MAX_CLOCKS: usize = 16;

struct Time {
    roots: Roots,
    machine: Arc<dyn MachineCalls>,
    rtc: Reread,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Time {
        rtc: Reread::with_limit(context.roots.sys("class/rtc/rtc0/since_epoch"), 4096),
        machine: Arc::clone(&context.machine),
        roots: context.roots.clone(),
        buffer: Vec::new(),
    }))
}

impl Collector for Time {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        // chronyd's directory is not accessible to other users; then it is unknown whether it runs.
        let runs = |marks: &[&str]| -> Option<bool> {
            let mut seen = marks.iter().map(|mark| try_exists(&self.roots.root(mark)));
            if seen.clone().any(|seen| matches!(seen, Ok(true))) {
                return Some(true);
            }
            seen.all(|seen| seen.is_ok()).then_some(false)
        };
        let mut family = page.family(
            "virtfleet_guest_time_service_running",
            "Whether a time synchronization service runs, according to its files.",
            MetricType::Gauge,
        );
        for (service, marks) in SERVICES {
            if let Some(runs) = runs(marks) {
                family.sample(&[("service", service)], f64::from(u8::from(runs)));
            }
        }
        // systemd-timesyncd touches this file when it has set the clock; other services leave no
        // file that the agent can read.
        if runs(SERVICES[0].1) == Some(true) {
            let is_set = exists(&self.roots.root("/run/systemd/timesync/synchronized"));
            let mut family = page.family(
                "virtfleet_guest_time_synchronized",
                "Whether the time synchronization service has set the clock since the start of the guest.",
                MetricType::Gauge,
            );
            family.sample(&[("service", SERVICES[0].0)], f64::from(u8::from(is_set)));
        }
        let now = self.machine.realtime().as_secs_f64();
        if let Some(rtc) = self
            .rtc
            .text()
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok())
        {
            // Its resolution is one second.
            page.gauge(
                "virtfleet_guest_rtc_offset_seconds",
                "Offset of the system clock from the virtual hardware clock, which has a resolution of one second.",
                now.floor() - f64::from(rtc),
            );
        }
        let clocks = self.roots.sys("class/ptp");
        let mut family = page.family(
            "virtfleet_guest_ptp_clock_info",
            "A PTP clock of the hardware, e.g. the host's clock, always 1.",
            MetricType::Gauge,
        );
        for clock in files::names(&clocks).into_iter().take(MAX_CLOCKS) {
            if let Some(name) = files::text(&clocks.join(&clock).join("clock_name"), &mut self.buffer) {
                family.sample(&[("clock", &clock), ("name", name.trim())], 1.0);
            }
        }
        Ok(())
    }
}
