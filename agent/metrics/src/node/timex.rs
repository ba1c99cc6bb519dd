//! `timex`: state of the clock synchronization, from adjtimex(2).

use std::sync::Arc;

use virtfleet_agent_host::ClockCalls;
use virtfleet_agent_host::Errno;
use virtfleet_wire::exposition::Page;

use crate::{CollectError, Collector, Context, RegistryError};

struct Timex(Arc<dyn ClockCalls>);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Timex(Arc::clone(&context.clock))))
}

impl Collector for Timex {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let state = self.0.clock_state().map_err(|error| match error {
            Errno::EPERM | Errno::EACCES => CollectError::no_data("adjtimex(2) is forbidden here"),
            error => CollectError::because("adjtimex(2) failed", error),
        })?;
        for (name, help, value) in [
            (
                "node_timex_sync_status",
                "Whether the clock is synchronized to a reliable server: 1 or 0.",
                f64::from(u8::from(state.synchronised)),
            ),
            (
                "node_timex_offset_seconds",
                "Offset of the clock from its reference in seconds.",
                state.offset,
            ),
            (
                "node_timex_frequency_adjustment_ratio",
                "Frequency adjustment of the clock; 1 is its own speed.",
                state.frequency,
            ),
            (
                "node_timex_maxerror_seconds",
                "Maximum error in seconds.",
                state.largest_error,
            ),
            (
                "node_timex_estimated_error_seconds",
                "Estimated error in seconds.",
                state.estimated_error,
            ),
            (
                "node_timex_status",
                "Status bits of the clock.",
                f64::from(state.status),
            ),
            (
                "node_timex_loop_time_constant",
                "Time constant of the phase-locked loop.",
                state.constant,
            ),
            (
                "node_timex_tick_seconds",
                "Seconds between clock ticks.",
                state.tick,
            ),
            (
                "node_timex_pps_frequency_hertz",
                "Frequency of the PPS signal.",
                state.pps_frequency,
            ),
            (
                "node_timex_pps_jitter_seconds",
                "Jitter of the PPS signal.",
                state.pps_jitter,
            ),
            (
                "node_timex_pps_shift_seconds",
                "Calibration interval of the PPS signal.",
                f64::from(state.pps_shift),
            ),
            (
                "node_timex_pps_stability_hertz",
                "Stability of the PPS signal: mean of its recent frequency changes.",
                state.pps_stability,
            ),
        ] {
            page.gauge(name, help, value);
        }
        for (name, help, value) in [
            (
                "node_timex_pps_jitter_total",
                "Number of times that the jitter of the PPS signal exceeded its limit.",
                state.pps_jitter_exceeded,
            ),
            (
                "node_timex_pps_calibration_total",
                "Calibration intervals of the PPS signal.",
                state.pps_calibrations,
            ),
            (
                "node_timex_pps_error_total",
                "Calibration errors of the PPS signal.",
                state.pps_errors,
            ),
            (
                "node_timex_pps_stability_exceeded_total",
                "Number of times that the stability of the PPS signal exceeded its limit.",
                state.pps_stability_exceeded,
            ),
        ] {
            page.counter(name, help, value);
        }
        page.gauge(
            "node_timex_tai_offset_seconds",
            "Offset of International Atomic Time (TAI) from UTC in seconds.",
            f64::from(state.tai_offset),
        );
        Ok(())
    }
}
