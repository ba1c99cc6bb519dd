//! Detects pauses of the VM by comparing samples of the guest's clocks and its RTC.
//!
//! While a hypervisor stops, saves or migrates a VM, the guest's monotonic, boot and wall clocks
//! stop together (QEMU `stop`, with and without KVM's clock). They alone cannot show the pause. The
//! hypervisor keeps the RTC, which continues. The length of the pause is the difference between RTC
//! and guest clocks, with the RTC's resolution of one second per reading.
//!
//! ```text
//! sample, sample ─▶ rtc − elapsed       above the resolution ─▶ pause
//!                   boottime − monotonic  grew               ─▶ suspend (by the guest)
//!                   realtime − boottime   jumped             ─▶ step of the wall clock
//! ```
//!
//! Not detected: pauses below the resolution, pauses that a paravirtual clock hides because it
//! continues, and pauses in guests without an RTC. `docs/decisions/0009-pauses.md` lists the events
//! that cannot be told apart.

#[cfg(test)]
mod tests;

const SECOND: u64 = 1_000_000_000;
/// Uncertainty of one RTC reading: it returns a whole second, which began up to a second ago.
const RTC_RESOLUTION_NS: u64 = SECOND;
/// Maximum drift between the RTC and the guest's raw clock, in parts per million.
const MAX_DRIFT_PPM: u64 = 500;
/// Minimum length of a reported suspend or step, in nanoseconds. A time service slews smaller
/// differences.
const MIN_EVENT_NS: u64 = SECOND / 10;
/// Minimum difference of RTC and wall clock before a correction of the RTC, in nanoseconds.
const MIN_RTC_ERROR_NS: u64 = 2 * SECOND;
/// Maximum difference of RTC and wall clock after a correction of the RTC, in nanoseconds.
const MAX_RTC_ERROR_NS: u64 = SECOND;

/// Readings of all clocks of a guest at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// RTC, whole seconds since 1970 (`/sys/class/rtc/rtc0/since_epoch`); `None` if unreadable.
    pub rtc_seconds: Option<u64>,
    /// `CLOCK_REALTIME`, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// `CLOCK_BOOTTIME` in nanoseconds; includes suspends of the guest.
    pub boottime_ns: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds; excludes suspends of the guest.
    pub monotonic_ns: u64,
    /// `CLOCK_MONOTONIC_RAW` in nanoseconds; never slewed (chrony slews the other clocks by up to 8
    /// %).
    pub raw_ns: u64,
    /// Time from the first to the last reading, in nanoseconds: the uncertainty of the sample.
    pub spread_ns: u64,
}

impl Sample {
    fn rtc_ns(&self) -> Option<i128> {
        self.rtc_seconds
            .map(|seconds| i128::from(seconds) * i128::from(SECOND))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The VM was stopped, and its clocks with it.
    Pause,
    /// The guest suspended itself (ACPI S3, s2idle).
    Suspend,
    /// The wall clock was set.
    Step,
}

impl Kind {
    /// Name of the kind in a report.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Suspend => "suspend",
            Self::Step => "step",
        }
    }

    /// Clock that showed the event.
    pub fn source(self) -> &'static str {
        match self {
            Self::Pause => "rtc",
            Self::Suspend => "boottime",
            Self::Step => "realtime",
        }
    }
}

/// Event between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    /// Length in nanoseconds. For a step: its size, negative if the clock was set back.
    pub length_ns: i64,
    /// Uncertainty of `length_ns` in both directions, in nanoseconds.
    pub resolution_ns: u64,
    /// `CLOCK_BOOTTIME` of the sample that showed it.
    pub boottime_ns: u64,
    /// For a pause: the wall clock was set between the same two samples, most likely to correct it
    /// after the pause. Setting clock and RTC together without a pause looks the same.
    pub clock_set_too: bool,
}

/// Ability of the last two samples to show a pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DetectionLimit {
    /// None: there is no pair of samples yet, or one of them has no RTC.
    #[default]
    Unknown,
    /// A pause longer than this number of nanoseconds is detected.
    Above(u64),
}

/// Compares each sample with the previous one.
#[derive(Debug, Clone, Default)]
pub struct Detector {
    last: Option<Sample>,
    sight: DetectionLimit,
}

impl Detector {
    /// Returns the events since the previous sample in the order pause, suspend, step. The first
    /// sample yields none.
    pub fn observe(&mut self, now: Sample) -> impl Iterator<Item = Event> + use<> {
        let seen = self.last.replace(now).map(|before| compare(&before, &now));
        let (sight, events) = seen.unwrap_or((DetectionLimit::Unknown, [None; 3]));
        self.sight = sight;
        events.into_iter().flatten()
    }

    /// Returns the detection limit of the last two samples.
    pub fn detection_limit(&self) -> DetectionLimit {
        self.sight
    }
}

fn compare(before: &Sample, now: &Sample) -> (DetectionLimit, [Option<Event>; 3]) {
    let grown = |clock: fn(&Sample) -> u64| i128::from(clock(now)) - i128::from(clock(before));
    let spread = before.spread_ns.saturating_add(now.spread_ns);
    let event = |kind, length: i128, resolution_ns| Event {
        kind,
        length_ns: i64::try_from(length).unwrap_or(if length < 0 { i64::MIN } else { i64::MAX }),
        resolution_ns,
        boottime_ns: now.boottime_ns,
        clock_set_too: false,
    };
    let above = |length: i128| length.unsigned_abs() > u128::from(MIN_EVENT_NS.saturating_add(spread));

    let asleep = grown(|s| s.boottime_ns) - grown(|s| s.monotonic_ns);
    let suspend = (asleep > 0 && above(asleep)).then(|| event(Kind::Suspend, asleep, spread));
    let set = grown(|s| s.realtime_ns) - grown(|s| s.boottime_ns);
    let step = above(set).then(|| event(Kind::Step, set, spread));

    let Some((rtc_before, rtc_now)) = before.rtc_ns().zip(now.rtc_ns()) else {
        return (DetectionLimit::Unknown, [None, suspend, step]);
    };
    // Elapsed time in the guest, including suspends, without slewing.
    let lived = grown(|s| s.raw_ns) + asleep.max(0);
    let lived_ns = u64::try_from(lived).unwrap_or_default();
    let drift = lived_ns.saturating_mul(MAX_DRIFT_PPM) / 1_000_000;
    let resolution = (2 * RTC_RESOLUTION_NS)
        .saturating_add(drift)
        .saturating_add(spread);
    let gained = rtc_now - rtc_before - lived;
    let was_set = step.is_none() && {
        let offset = |rtc: i128, sample: &Sample| (rtc - i128::from(sample.realtime_ns)).unsigned_abs();
        offset(rtc_before, before) >= u128::from(MIN_RTC_ERROR_NS)
            && offset(rtc_now, now) <= u128::from(MAX_RTC_ERROR_NS.saturating_add(spread))
    };
    let pause = (gained > i128::from(resolution) && !was_set).then(|| Event {
        clock_set_too: step.is_some(),
        ..event(Kind::Pause, gained, resolution)
    });
    (DetectionLimit::Above(resolution), [pause, suspend, step])
}
