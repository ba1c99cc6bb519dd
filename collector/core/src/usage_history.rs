//! Use of CPU and pressure of a guest over the last hour, one point a minute.
//!
//! A point has five bytes, so an hour costs 300 bytes per VM. Longer history is that of Prometheus.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    pull_result::UnixMs,
    usage::{GuestUsage, Share},
};

pub const HISTORY_POINTS: usize = 60;
/// Time of one point, in milliseconds.
pub const HISTORY_STEP_MS: u64 = 60_000;
/// The value of a share that is not known.
const UNKNOWN: u8 = u8::MAX;
/// The value of the share 1.
const WHOLE: u16 = 250;

/// The largest shares within one minute, in steps of 0.4 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UsagePoint([u8; 5]);

impl UsagePoint {
    const NONE: Self = Self([UNKNOWN; 5]);

    fn of(usage: GuestUsage) -> Self {
        let shares = [
            usage.cpu_steal,
            usage.cpu_used,
            usage.cpu_pressure,
            usage.memory_pressure,
            usage.io_pressure,
        ];
        Self(shares.map(|share| share.map_or(UNKNOWN, reduced)))
    }

    fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The larger one of each share; what is not known is smaller than what is.
    fn max(self, other: Self) -> Self {
        let mut larger = self;
        for (one, other) in larger.0.iter_mut().zip(other.0) {
            if *one == UNKNOWN || other != UNKNOWN && other > *one {
                *one = other;
            }
        }
        larger
    }
}

/// A share in steps of 0.4 %, rounded up, so that a small share is not zero.
fn reduced(share: Share) -> u8 {
    u8::try_from(share.milli().div_ceil(4).min(WHOLE)).unwrap_or(UNKNOWN - 1)
}

fn share(value: u8) -> Option<Share> {
    (value != UNKNOWN).then(|| Share::of(u64::from(value), u64::from(WHOLE)))
}

/// The points of one VM, in a ring that the minute indexes.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageHistory {
    /// The last minute with a point, since 1970.
    minute: u64,
    /// None until the first use is known: a VM without agent costs nothing.
    points: Option<Box<[UsagePoint; HISTORY_POINTS]>>,
}

impl UsageHistory {
    /// Records the use between two answers; `at` is the time of the later one.
    pub(crate) fn record(&mut self, at: UnixMs, usage: GuestUsage) {
        let point = UsagePoint::of(usage);
        if point.is_none() {
            return;
        }
        let minute = at / HISTORY_STEP_MS;
        let points = self
            .points
            .get_or_insert_with(|| Box::new([UsagePoint::NONE; HISTORY_POINTS]));
        if minute < self.minute {
            // The clock was set back: earlier points have no time any more.
            points.fill(UsagePoint::NONE);
        } else {
            let passed = (minute - self.minute).min(HISTORY_POINTS as u64);
            for skipped in minute + 1 - passed..=minute {
                points[place(skipped)] = UsagePoint::NONE;
            }
        }
        self.minute = minute;
        let current = &mut points[place(minute)];
        *current = current.max(point);
    }

    /// The points of the hour before `now`; none if there is no point in it.
    pub(crate) fn view(&self, now: UnixMs) -> Option<UsageHistoryView> {
        let points = self.points.as_ref()?;
        let end = now / HISTORY_STEP_MS;
        let first = (end + 1).saturating_sub(HISTORY_POINTS as u64);
        let at = |minute: u64| {
            let is_kept = minute <= self.minute && minute + HISTORY_POINTS as u64 > self.minute;
            if is_kept {
                points[place(minute)]
            } else {
                UsagePoint::NONE
            }
        };
        let all: Vec<UsagePoint> = (first..=end).map(at).collect();
        if all.iter().all(|point| point.is_none()) {
            return None;
        }
        let column = |index: usize| all.iter().map(|point| share(point.0[index])).collect();
        Some(UsageHistoryView {
            end_ms: end * HISTORY_STEP_MS,
            step_ms: HISTORY_STEP_MS,
            cpu_steal: column(0),
            cpu_used: column(1),
            cpu_pressure: column(2),
            memory_pressure: column(3),
            io_pressure: column(4),
        })
    }
}

fn place(minute: u64) -> usize {
    usize::try_from(minute % HISTORY_POINTS as u64).unwrap_or_default()
}

/// Use of CPU and pressure over the last hour: the largest share within each minute, oldest first;
/// null where it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageHistoryView {
    /// Begin of the last minute.
    pub end_ms: UnixMs,
    /// Time between two points.
    pub step_ms: u64,
    /// CPU time that the infra node gave to others.
    pub cpu_steal: Vec<Option<Share>>,
    /// CPU time in use.
    pub cpu_used: Vec<Option<Share>>,
    /// Time in which a task waited for a CPU.
    pub cpu_pressure: Vec<Option<Share>>,
    /// Time in which a task waited for memory.
    pub memory_pressure: Vec<Option<Share>>,
    /// Time in which a task waited for I/O.
    pub io_pressure: Vec<Option<Share>>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stolen(percent: u64) -> GuestUsage {
        GuestUsage {
            cpu_steal: Some(Share::of(percent, 100)),
            ..GuestUsage::default()
        }
    }

    /// Steal in percent of the minutes that have a point, with their distance from the last one.
    fn seen(history: &UsageHistory, now: UnixMs) -> Vec<(usize, u16)> {
        let Some(view) = history.view(now) else {
            return Vec::new();
        };
        assert_eq!(view.cpu_steal.len(), HISTORY_POINTS);
        let points = view.cpu_steal.iter().rev().enumerate();
        points
            .filter_map(|(back, share)| Some((back, share.as_ref()?.percent())))
            .collect()
    }

    #[test]
    fn a_point_is_the_largest_share_of_its_minute_and_lasts_an_hour() {
        let minute = HISTORY_STEP_MS;
        let start = 1_000_000 * minute;
        let mut history = UsageHistory::default();
        assert_eq!(history.view(start), None);
        history.record(start, GuestUsage::default());
        assert!(history.points.is_none(), "a VM without use costs nothing");
        for (at, percent) in [
            (start, 20),
            (start + 30_000, 60),
            (start + 59_999, 0),
            (start + 3 * minute, 8),
        ] {
            history.record(at, stolen(percent));
        }
        assert_eq!(seen(&history, start + 3 * minute), [(0, 8), (3, 60)]);
        assert_eq!(seen(&history, start + 59 * minute), [(56, 8), (59, 60)]);
        assert_eq!(seen(&history, start + 60 * minute), [(57, 8)]);
        assert_eq!(seen(&history, start + 63 * minute), []);
        // A gap of hours leaves nothing old, and neither does a clock that was set back.
        history.record(start + 300 * minute, stolen(40));
        assert_eq!(seen(&history, start + 300 * minute), [(0, 40)]);
        history.record(start, stolen(12));
        assert_eq!(seen(&history, start), [(0, 12)]);
        assert_eq!(size_of::<UsagePoint>() * HISTORY_POINTS, 300);
    }

    #[test]
    fn what_is_not_known_is_null_and_small_shares_are_not_zero() {
        let mut history = UsageHistory::default();
        history.record(
            HISTORY_STEP_MS,
            GuestUsage {
                io_pressure: Some(Share::of(1, 1000)),
                ..stolen(100)
            },
        );
        let view = history.view(HISTORY_STEP_MS).unwrap();
        assert_eq!(view.cpu_steal.last().unwrap().unwrap().percent(), 100);
        assert!(view.io_pressure.last().unwrap().unwrap().milli() > 0);
        assert_eq!(view.cpu_used.last().unwrap(), &None);
        // Early after 1970, an hour has fewer minutes.
        assert_eq!(view.cpu_steal.len(), 2);
    }

    proptest! {
        #[test]
        fn times_of_any_order_never_panic_and_only_the_last_hour_is_seen(
            times in proptest::collection::vec((0_u64..u64::MAX / 2, 0_u64..=100), 0..40),
            now in 0_u64..u64::MAX / 2,
        ) {
            let mut history = UsageHistory::default();
            for (at, percent) in times {
                history.record(at, stolen(percent));
                let view = history.view(at).expect("the point that was recorded");
                prop_assert!(view.cpu_steal.last().expect("a point").is_some());
            }
            if let Some(view) = history.view(now) {
                prop_assert!(view.cpu_steal.len() <= HISTORY_POINTS);
            }
        }
    }
}
