//! Whether the machine stood still: from the guest's clocks and its RTC, sample by sample.
//!
//! A VM that its hypervisor stops, saves or migrates does not run, and neither do its clocks: monotonic, boot and wall clock
//! freeze together (QEMU `stop`, with and without KVM's clock), so they alone show nothing. The RTC is kept by the hypervisor
//! and goes on. What the RTC gained on the guest's clocks is the pause, to the RTC's resolution of a second a reading.
//!
//! ```text
//! sample, sample ─▶ rtc − elapsed       certainly above the resolution ─▶ pause
//!                   boottime − monotonic  grew                         ─▶ suspend (the guest's own)
//!                   realtime − boottime   jumped                       ─▶ step of the wall clock
//! ```
//!
//! What cannot be known is not guessed: pauses below the resolution, pauses that a paravirtual clock hides by going on, and
//! pauses without an RTC. `docs/decisions/0009-pauses.md` lists what is mistaken for what.

#[cfg(test)]
mod tests;

const SECOND: u64 = 1_000_000_000;
/// A reading of the RTC is a whole second that began up to a second ago.
const RTC_READING_NS: u64 = SECOND;
/// How far the RTC and the guest's raw clock may drift apart, in parts per million.
const DRIFT_PPM: u64 = 500;
/// Smaller suspends and steps are not worth an event, in nanoseconds: what a time service slews instead of stepping.
const FLOOR_NS: u64 = SECOND / 10;
/// An RTC that was at least this far from the wall clock, in nanoseconds …
const RTC_OFF_NS: u64 = 2 * SECOND;
/// … and is now at most this far from it, was set from it.
const RTC_RIGHT_NS: u64 = SECOND;

/// All clocks of a guest at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// The RTC, whole seconds since 1970 (`/sys/class/rtc/rtc0/since_epoch`); none where it cannot be read.
    pub rtc_seconds: Option<u64>,
    /// `CLOCK_REALTIME`, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// `CLOCK_BOOTTIME`, nanoseconds: counts the guest's own suspends.
    pub boottime_ns: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds: does not count them.
    pub monotonic_ns: u64,
    /// `CLOCK_MONOTONIC_RAW`, nanoseconds: as the former, and nobody slews it (chrony slews the others by up to 8 %).
    pub raw_ns: u64,
    /// From the first reading to the last one, in nanoseconds: how far the clocks may be apart through our own slowness.
    pub spread_ns: u64,
}

impl Sample {
    fn rtc_ns(&self) -> Option<i128> {
        self.rtc_seconds
            .map(|seconds| i128::from(seconds) * i128::from(SECOND))
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The machine stood still and its clocks with it.
    Pause,
    /// The guest slept by its own doing (ACPI S3, s2idle).
    Suspend,
    /// The wall clock was set.
    Step,
}

impl Kind {
    /// As in a report.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Suspend => "suspend",
            Self::Step => "step",
        }
    }

    /// The clock that showed it.
    pub fn source(self) -> &'static str {
        match self {
            Self::Pause => "rtc",
            Self::Suspend => "boottime",
            Self::Step => "realtime",
        }
    }
}

/// One thing that happened between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: Kind,
    /// How long, in nanoseconds; of a step: by how much, negative when the clock was set back.
    pub length_ns: i64,
    /// How far `length_ns` may be off to either side, in nanoseconds.
    pub resolution_ns: u64,
    /// `CLOCK_BOOTTIME` of the sample that showed it.
    pub boottime_ns: u64,
    /// Of a pause: the wall clock was set between the same two samples. Most likely it was corrected after the pause; that
    /// clock and RTC were set together, without a pause, looks the same.
    pub clock_set_too: bool,
}

/// What two samples can tell of a pause between them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sight {
    /// Nothing: there is no pair of samples yet, or no RTC in one of the two.
    #[default]
    Blind,
    /// A pause longer than this many nanoseconds would have been seen.
    Above(u64),
}

/// Compares each sample with the one before.
#[derive(Debug, Clone, Default)]
pub struct Detector {
    last: Option<Sample>,
    sight: Sight,
}

impl Detector {
    /// What happened since the sample before, in the order pause, suspend, step. The first sample tells nothing.
    pub fn observe(&mut self, now: Sample) -> impl Iterator<Item = Event> + use<> {
        let seen = self.last.replace(now).map(|before| compare(&before, &now));
        let (sight, events) = seen.unwrap_or((Sight::Blind, [None; 3]));
        self.sight = sight;
        events.into_iter().flatten()
    }

    /// What the last two samples could tell.
    pub fn sight(&self) -> Sight {
        self.sight
    }
}

fn compare(before: &Sample, now: &Sample) -> (Sight, [Option<Event>; 3]) {
    let grown = |clock: fn(&Sample) -> u64| i128::from(clock(now)) - i128::from(clock(before));
    let spread = before.spread_ns.saturating_add(now.spread_ns);
    let event = |kind, length: i128, resolution_ns| Event {
        kind,
        length_ns: i64::try_from(length).unwrap_or(if length < 0 { i64::MIN } else { i64::MAX }),
        resolution_ns,
        boottime_ns: now.boottime_ns,
        clock_set_too: false,
    };
    let above = |length: i128| length.unsigned_abs() > u128::from(FLOOR_NS.saturating_add(spread));

    let asleep = grown(|s| s.boottime_ns) - grown(|s| s.monotonic_ns);
    let suspend = (asleep > 0 && above(asleep)).then(|| event(Kind::Suspend, asleep, spread));
    let set = grown(|s| s.realtime_ns) - grown(|s| s.boottime_ns);
    let step = above(set).then(|| event(Kind::Step, set, spread));

    let Some((rtc_before, rtc_now)) = before.rtc_ns().zip(now.rtc_ns()) else {
        return (Sight::Blind, [None, suspend, step]);
    };
    // What went by as the guest lived it, suspends included, slewing left out.
    let lived = grown(|s| s.raw_ns) + asleep.max(0);
    let lived_ns = u64::try_from(lived).unwrap_or_default();
    let drift = lived_ns.saturating_mul(DRIFT_PPM) / 1_000_000;
    let resolution = (2 * RTC_READING_NS).saturating_add(drift).saturating_add(spread);
    let gained = rtc_now - rtc_before - lived;
    let was_set = step.is_none() && {
        let offset = |rtc: i128, sample: &Sample| (rtc - i128::from(sample.realtime_ns)).unsigned_abs();
        offset(rtc_before, before) >= u128::from(RTC_OFF_NS)
            && offset(rtc_now, now) <= u128::from(RTC_RIGHT_NS.saturating_add(spread))
    };
    let pause = (gained > i128::from(resolution) && !was_set).then(|| Event {
        clock_set_too: step.is_some(),
        ..event(Kind::Pause, gained, resolution)
    });
    (Sight::Above(resolution), [pause, suspend, step])
}
