//! The guest's clocks, and whether this process is root.

use nix::{
    time::{ClockId, clock_gettime},
    unistd::Uid,
};
use virtfleet_agent_core::pause::Sample;
use virtfleet_wire::report::Clock;

use crate::Reread;

/// Maximum duration of a sample that is accepted at once, in nanoseconds.
const MAX_SAMPLE_NS: u64 = 10_000_000;
/// Maximum number of attempts for a sample.
const MAX_ATTEMPTS: usize = 3;

/// The three clocks of a report, read one after the other. A clock that the kernel lacks is 0.
pub fn clock() -> Clock {
    // In this order, so that the boot clock, which includes suspended time, is never behind the
    // monotonic clock.
    let monotonic_ns = nanoseconds(ClockId::CLOCK_MONOTONIC);
    Clock {
        boottime_ns: nanoseconds(ClockId::CLOCK_BOOTTIME),
        monotonic_ns,
        realtime_ns: nanoseconds(ClockId::CLOCK_REALTIME),
    }
}

/// All clocks and the RTC, read as close together as possible. A sample that was delayed (a busy
/// host) is repeated, and the fastest one is returned.
pub fn clock_sample(rtc: &mut Reread) -> Sample {
    let mut best = sample_once(rtc);
    for _ in 1..MAX_ATTEMPTS {
        if best.spread_ns <= MAX_SAMPLE_NS {
            break;
        }
        let again = sample_once(rtc);
        if again.spread_ns < best.spread_ns {
            best = again;
        }
    }
    best
}

fn sample_once(rtc: &mut Reread) -> Sample {
    let start = nanoseconds(ClockId::CLOCK_MONOTONIC);
    let rtc_seconds = rtc.text().ok().and_then(|text| text.trim().parse().ok());
    let clock = clock();
    let raw_ns = nanoseconds(ClockId::CLOCK_MONOTONIC_RAW);
    Sample {
        rtc_seconds,
        realtime_ns: clock.realtime_ns,
        boottime_ns: clock.boottime_ns,
        monotonic_ns: clock.monotonic_ns,
        raw_ns,
        spread_ns: nanoseconds(ClockId::CLOCK_MONOTONIC).saturating_sub(start),
    }
}

fn nanoseconds(id: ClockId) -> u64 {
    clock_gettime(id).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
        let rest = u64::try_from(time.tv_nsec()).unwrap_or_default();
        seconds.saturating_mul(1_000_000_000).saturating_add(rest)
    })
}

/// True if this process runs as root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_every_clock_and_the_rtc_if_present() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("since_epoch");
        let mut rtc = Reread::new(&path);
        assert_eq!(clock_sample(&mut rtc).rtc_seconds, None);
        for (text, seconds) in [("1700000000\n", Some(1_700_000_000)), ("soon", None)] {
            std::fs::write(&path, text).unwrap();
            let sample = clock_sample(&mut rtc);
            assert_eq!(sample.rtc_seconds, seconds);
            assert!(
                sample.raw_ns > 0 && sample.boottime_ns >= sample.monotonic_ns,
                "{sample:?}"
            );
        }
    }
}
