//! Predicts from a few hours of data points when a resource will be full, by linear regression.
//!
//! Times are `CLOCK_BOOTTIME`, which is never set; a boot starts without points.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Usage;

/// Maximum age of a data point.
pub const TREND_WINDOW: Duration = Duration::from_hours(6);
/// Minimum time span of the points for a prediction.
pub const MIN_SPAN: Duration = Duration::from_mins(30);
/// Minimum distance between points; it limits their number to 74.
pub const MIN_SPACING: Duration = Duration::from_mins(5);
/// Minimum number of points for a prediction.
const MIN_POINTS: usize = 3;
/// A decrease by this fraction (1/n) of the capacity is a clean-up: earlier points are discarded.
const CLEAN_UP_FRACTION: u64 = 20;

/// Usage at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// `CLOCK_BOOTTIME` in nanoseconds.
    pub at_ns: u64,
    pub bytes: u64,
    /// Used inodes, if the filesystem limits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// See [`super::DiskSample::io_errors`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_errors: Option<u64>,
    /// See [`super::DiskSample::io_timeouts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_timeouts: Option<u64>,
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Appends a point. Removes points outside of the window, and points later than `now`: they are
/// from another boot.
pub fn add(points: &mut Vec<Point>, now: Point) {
    let oldest = now.at_ns.saturating_sub(ns(TREND_WINDOW));
    points.retain(|point| (oldest..=now.at_ns).contains(&point.at_ns));
    points.sort_by_key(|point| point.at_ns);
    // Replace the last point while it is close to its predecessor: the newest point is kept, and
    // their number stays bounded however often points are added.
    let near = |point: &Point| now.at_ns - point.at_ns < ns(MIN_SPACING);
    while points.len() >= 2 && points.get(points.len() - 2).is_some_and(near) {
        points.pop();
    }
    points.push(now);
}

/// Seconds from the last point until the resource is full; 0 if it is full. `None` if usage does
/// not grow, or there are too few points.
pub fn full_in(points: &[Point], usage: Usage, value: impl Fn(&Point) -> Option<u64>) -> Option<f64> {
    let full = usage.full();
    if full == 0 {
        return None;
    }
    if usage.available == 0 {
        return Some(0.0);
    }
    let values: Vec<(u64, u64)> = points
        .iter()
        .filter_map(|point| Some((point.at_ns, value(point)?)))
        .collect();
    let cleaned = values
        .windows(2)
        .rposition(|pair| pair[0].1.saturating_sub(pair[1].1) > full / CLEAN_UP_FRACTION);
    let values = &values[cleaned.map_or(0, |at| at + 1)..];
    let (first, last) = (values.first()?, values.last()?);
    if values.len() < MIN_POINTS || last.0.saturating_sub(first.0) < ns(MIN_SPAN) {
        return None;
    }
    // Relative to the first point, to keep the numbers small.
    let xy = values.iter().map(|(at, value)| {
        let x = (at - first.0) as f64 / 1e9;
        (x, *value as f64 - first.1 as f64)
    });
    let count = values.len() as f64;
    let (sum_x, sum_y) = xy.clone().fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x, sum.1 + y));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (over, under) = xy.fold((0.0, 0.0), |sum, (x, y)| {
        (sum.0 + (x - mean_x) * (y - mean_y), sum.1 + (x - mean_x).powi(2))
    });
    let per_second = over / under;
    let left = usage.available as f64 / per_second;
    (per_second.is_finite() && per_second > 0.0 && left.is_finite()).then_some(left)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;
    const MIN: u64 = 60 * 1_000_000_000;

    fn point(minute: u64, bytes: u64) -> Point {
        Point {
            at_ns: minute * MIN,
            bytes,
            ..Point::default()
        }
    }

    fn left(points: &[Point], full: u64) -> Option<f64> {
        let used = points.last().map_or(0, |point| point.bytes);
        let usage = Usage {
            used,
            available: full.saturating_sub(used),
        };
        full_in(points, usage, |point| Some(point.bytes))
    }

    fn every_quarter(values: &[u64]) -> Vec<Point> {
        let at = (0..).step_by(15);
        at.zip(values)
            .map(|(minute, value)| point(minute, *value))
            .collect()
    }

    #[test]
    fn time_until_full_follows_the_trend() {
        let grows = every_quarter(&[40 * GIB, 41 * GIB, 42 * GIB, 43 * GIB]);
        assert_eq!(left(&grows, 47 * GIB), Some(3600.0));
        assert_eq!(left(&grows, 43 * GIB), Some(0.0));
        assert_eq!(left(&grows[..2], 47 * GIB), None, "two points are too few");
        let hasty: Vec<Point> = (0..10).map(|n| point(2 * n, n * GIB)).collect();
        assert_eq!(left(&hasty, 47 * GIB), None, "18 minutes are too short");
        assert_eq!(left(&[], 47 * GIB), None);
        assert_eq!(left(&every_quarter(&[5, 5, 5, 5]), 10), None);
        assert_eq!(left(&every_quarter(&[5, 4, 3, 2]), 10), None);
        assert_eq!(full_in(&grows, Usage::default(), |point| Some(point.bytes)), None);
        assert_eq!(
            full_in(
                &grows,
                Usage {
                    used: 1,
                    available: 9
                },
                |point| point.inodes
            ),
            None,
            "without inodes"
        );
    }

    #[test]
    fn clean_up_resets_the_trend() {
        let cleaned = [40, 50, 60, 70, 20, 20, 20, 20].map(|n| n * GIB);
        assert_eq!(left(&every_quarter(&cleaned), 100 * GIB), None);
        let filling = [90, 10, 20, 30, 40].map(|n| n * GIB);
        let left = left(&every_quarter(&filling), 100 * GIB).unwrap();
        assert!((left - 5400.0).abs() < 1.0, "{left}");
    }

    proptest! {
        #[test]
        fn linear_growth_is_predicted_exactly(
            minutes in 10u64..60, count in 4usize..30, per_minute in 1u64..1 << 30, start in 0u64..1 << 40, ahead in 1u64..10_000
        ) {
            let points: Vec<Point> = (0..count as u64)
                .map(|n| point(n * minutes, start + n * minutes * per_minute))
                .collect();
            let last = points.last().unwrap().bytes;
            let found = left(&points, last + ahead * per_minute).unwrap();
            let expected = ahead as f64 * 60.0;
            prop_assert!((found - expected).abs() <= expected * 1e-6 + 1e-3, "{found} {expected}");
        }

        #[test]
        fn points_are_bounded_sorted_and_predictions_not_negative(
            looks in proptest::collection::vec((0u64..1000 * MIN, any::<u64>()), 0..300), available in any::<u64>()
        ) {
            let mut points = Vec::new();
            for (at_ns, bytes) in looks {
                add(&mut points, Point { at_ns, bytes, ..Point::default() });
                prop_assert_eq!(points.last().map(|last| (last.at_ns, last.bytes)), Some((at_ns, bytes)));
                prop_assert!(points.len() <= 74);
                prop_assert!(points.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
                prop_assert!(at_ns - points[0].at_ns <= ns(TREND_WINDOW));
                let usage = Usage { used: bytes, available };
                if let Some(left) = full_in(&points, usage, |point| Some(point.bytes)) {
                    prop_assert!(left >= 0.0 && left.is_finite());
                }
            }
        }

        #[test]
        fn points_cover_the_window_at_any_rate(every in 1u64..20) {
            let mut points = Vec::new();
            for minute in (0..720).step_by(usize::try_from(every).unwrap()) {
                add(&mut points, point(minute, minute * GIB));
            }
            let span = points.last().unwrap().at_ns - points[0].at_ns;
            prop_assert!(span + 30 * MIN >= ns(TREND_WINDOW), "{span}");
            let found = left(&points, points.last().unwrap().bytes + 60 * GIB).unwrap();
            prop_assert!((found - 3600.0).abs() < 1.0, "{found}");
        }
    }
}
