//! What the collectors ask the kernel about its clock.

use nix::{errno::Errno, libc};

use crate::Kernel;

/// What adjtimex(2) says, in units of the base: seconds, hertz, ratios.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClockState {
    /// Whether the clock follows a server that can be trusted: the call's answer is not `TIME_ERROR`.
    pub synchronised: bool,
    /// How far the clock is from the reference, in seconds.
    pub offset: f64,
    /// How fast the clock is made to run; 1 is its own speed.
    pub frequency: f64,
    /// The largest error, in seconds.
    pub largest_error: f64,
    /// The estimated error, in seconds.
    pub estimated_error: f64,
    /// The bits `STA_*`.
    pub status: i32,
    /// The time constant of the phase-locked loop.
    pub constant: f64,
    /// Seconds between ticks.
    pub tick: f64,
    /// The pulse's frequency, in hertz.
    pub pps_frequency: f64,
    /// The pulse's jitter, in seconds.
    pub pps_jitter: f64,
    /// The pulse's interval, as a power of 2 of seconds.
    pub pps_shift: i32,
    /// The pulse's stability, in hertz.
    pub pps_stability: f64,
    /// How often the jitter was too large.
    pub pps_jitter_exceeded: f64,
    /// Intervals of calibration.
    pub pps_calibrations: f64,
    /// Errors of calibration.
    pub pps_errors: f64,
    /// How often the stability was too bad.
    pub pps_stability_exceeded: f64,
    /// How far international atomic time is ahead of UTC, in seconds; 0 when nobody has told the kernel.
    pub tai_offset: i32,
}

/// Asks the kernel about its clock.
pub trait ClockCalls: Send + Sync {
    /// The clock's state by adjtimex(2), which changes nothing. `EPERM` where a sandbox forbids the call.
    fn clock_state(&self) -> Result<ClockState, Errno>;
}

impl ClockCalls for Kernel {
    fn clock_state(&self) -> Result<ClockState, Errno> {
        // SAFETY: every field of `timex` is a number or padding, for which zeros are a value. `modes` 0 asks only.
        #[expect(unsafe_code, reason = "the structure has private padding and no constructor")]
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel reads and writes one `timex`, which is ours and lives on.
        #[expect(unsafe_code, reason = "adjtimex(2) has no safe form")]
        let answer = unsafe { libc::adjtimex(&raw mut timex) };
        Ok(state(Errno::result(answer)?, &timex))
    }
}

fn state(answer: i32, timex: &libc::timex) -> ClockState {
    /// Parts per million with 16 bits of fraction, see adjtimex(2).
    const PPM_16: f64 = 65_536e6;
    // The offset and the jitter are in microseconds unless the clock was told to count nanoseconds.
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
    fn nanoseconds_where_the_status_says_so() {
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
