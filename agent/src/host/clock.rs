//! The guest's clocks, and who we are.

use nix::{
    time::{ClockId, clock_gettime},
    unistd::Uid,
};
use virtfleet_wire::report::Clock;

/// The three clocks of a report, read one after the other. A clock that the kernel does not have is 0.
pub fn clock() -> Clock {
    let nanoseconds = |id: ClockId| {
        clock_gettime(id).map_or(0, |time| {
            let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
            let rest = u64::try_from(time.tv_nsec()).unwrap_or_default();
            seconds.saturating_mul(1_000_000_000).saturating_add(rest)
        })
    };
    // In this order, so that the boot clock, which counts suspended time too, is never behind the monotonic one.
    let monotonic_ns = nanoseconds(ClockId::CLOCK_MONOTONIC);
    Clock {
        boottime_ns: nanoseconds(ClockId::CLOCK_BOOTTIME),
        monotonic_ns,
        realtime_ns: nanoseconds(ClockId::CLOCK_REALTIME),
    }
}

/// Milliseconds since 1970.
pub fn realtime_unix_ms() -> u64 {
    clock().realtime_ns / 1_000_000
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}
