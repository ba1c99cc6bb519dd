//! Kernel queries of the time collectors.

use nix::{errno::Errno, libc};

use crate::Kernel;

/// Result of adjtimex(2) in base units: seconds, hertz, ratios.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClockState {
    /// True if the clock is synchronized to a reliable server: the call did not return
    /// `TIME_ERROR`.
    pub synchronised: bool,
    /// Offset from the reference in seconds.
    pub offset: f64,
    /// Frequency correction; 1 is the clock's own speed.
    pub frequency: f64,
    /// Maximum error in seconds.
    pub largest_error: f64,
    /// Estimated error in seconds.
    pub estimated_error: f64,
    /// The bits `STA_*`.
    pub status: i32,
    /// Time constant of the phase-locked loop.
    pub constant: f64,
    /// Seconds between ticks.
    pub tick: f64,
    /// Frequency of the PPS signal in hertz.
    pub pps_frequency: f64,
    /// Jitter of the PPS signal in seconds.
    pub pps_jitter: f64,
    /// Interval of the PPS signal as a power of 2 of seconds.
    pub pps_shift: i32,
    /// Stability of the PPS signal in hertz.
    pub pps_stability: f64,
    /// Number of times that the jitter exceeded its limit.
    pub pps_jitter_exceeded: f64,
    /// Number of calibration intervals.
    pub pps_calibrations: f64,
    /// Number of calibration errors.
    pub pps_errors: f64,
    /// Number of times that the stability exceeded its limit.
    pub pps_stability_exceeded: f64,
    /// Offset of TAI from UTC in seconds; 0 if the kernel has not been told it.
    pub tai_offset: i32,
}

/// Queries the kernel's clock state.
pub trait ClockCalls: Send + Sync {
    /// The clock's state from adjtimex(2), without changing it.
    ///
    /// # Errors
    /// `EPERM` if a sandbox forbids the call.
    fn clock_state(&self) -> Result<ClockState, Errno>;
}

impl ClockCalls for Kernel {
    fn clock_state(&self) -> Result<ClockState, Errno> {
        // SAFETY: every field of `timex` is a number or padding, for which zero is valid. `modes` 0
        // only reads.
        #[expect(unsafe_code, reason = "the structure has private padding and no constructor")]
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel reads and writes one `timex`, which this function owns.
        #[expect(unsafe_code, reason = "adjtimex(2) has no safe form")]
        let answer = unsafe { libc::adjtimex(&raw mut timex) };
        Ok(state(Errno::result(answer)?, &timex))
    }
}

fn state(answer: i32, timex: &libc::timex) -> ClockState {
    /// Parts per million with a 16-bit fraction, see adjtimex(2).
    const PPM_16: f64 = 65_536e6;
    // Offset and jitter are in microseconds, or in nanoseconds with `STA_NANO`.
    let fraction = if timex.status & libc::STA_NANO == 0 {
        1e6
    } else {
        1e9
    };
    ClockState {
        synchronised: answer != libc::TIME_ERROR,
        offset: timex.offset as f64 / fraction,
        frequency: 1.0 + timex.freq as f64 / PPM_16,
        largest_error: timex.maxerror as f64 / 1e6,
        estimated_error: timex.esterror as f64 / 1e6,
        status: timex.status,
        constant: timex.constant as f64,
        tick: timex.tick as f64 / 1e6,
        pps_frequency: timex.ppsfreq as f64 / PPM_16,
        pps_jitter: timex.jitter as f64 / fraction,
        pps_shift: timex.shift,
        pps_stability: timex.stabil as f64 / PPM_16,
        pps_jitter_exceeded: timex.jitcnt as f64,
        pps_calibrations: timex.calcnt as f64,
        pps_errors: timex.errcnt as f64,
        pps_stability_exceeded: timex.stbcnt as f64,
        tai_offset: timex.tai,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers() {
        match Kernel.clock_state() {
            Ok(state) => {
                assert!((state.frequency - 1.0).abs() < 0.01, "{state:?}");
                assert!((state.tick - 0.01).abs() < 0.002, "{state:?}");
            }
            Err(error) => assert_eq!(error, Errno::EPERM, "a sandbox"),
        }
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "exact by construction")]
    fn the_unit_is_nanoseconds_if_the_status_says_so() {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "the structure has private padding and no constructor")]
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        timex.offset = -1500;
        timex.freq = 65_536_000;
        let micro = state(libc::TIME_ERROR, &timex);
        assert!(!micro.synchronised);
        assert_eq!((micro.offset, micro.frequency), (-0.0015, 1.001));
        timex.status = libc::STA_NANO;
        let nano = state(0, &timex);
        assert!(nano.synchronised);
        assert_eq!(nano.offset, -0.000_001_5);
    }
}
