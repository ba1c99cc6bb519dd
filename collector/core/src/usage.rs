//! Use of CPU and memory in a guest, from the counters of two of its metrics pages. A guest says
//! what it likes: these values explain its own health and never decide identity or placement.

use std::num::NonZeroU16;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Minimum time between two pages, in milliseconds: shares over a shorter time are noise.
const MIN_INTERVAL_MS: u64 = 5_000;
/// Maximum time between two pages, in milliseconds.
const MAX_INTERVAL_MS: u64 = 300_000;
/// Thousandths in a whole.
const WHOLE: u64 = 1000;

/// Counters of one metrics page, in milliseconds. They wrap, which cancels out in differences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageCounters {
    /// CPU time of all modes and all CPUs; none if the page does not have it.
    pub cpu: Option<CpuCounters>,
    /// `node_pressure_cpu_waiting_seconds_total`.
    pub cpu_waiting_ms: Option<u32>,
    /// `node_pressure_memory_waiting_seconds_total`.
    pub memory_waiting_ms: Option<u32>,
    /// `node_pressure_io_waiting_seconds_total`.
    pub io_waiting_ms: Option<u32>,
}

/// CPU time by `node_cpu_seconds_total`, the sum over all CPUs, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// Of all modes.
    pub total_ms: u32,
    /// `idle` and `iowait`.
    pub idle_ms: u32,
    /// `steal`: the guest was ready to run, and the infra node ran something else.
    pub steal_ms: u32,
}

/// A share of a whole in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(NonZeroU16);

impl Share {
    /// `part` of `whole`; 1 if it is more, 0 of nothing.
    pub fn of(part: u64, whole: u64) -> Self {
        let milli = (part.saturating_mul(WHOLE))
            .checked_div(whole)
            .unwrap_or_default();
        let milli = u16::try_from(milli.min(WHOLE)).unwrap_or(u16::MAX - 1);
        Self(NonZeroU16::MIN.saturating_add(milli))
    }

    /// In thousandths.
    pub fn milli(self) -> u16 {
        self.0.get() - 1
    }

    /// In hundredths, rounded.
    pub fn percent(self) -> u16 {
        (self.milli() + 5) / 10
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.milli()) / 1000.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to 0 and 1 before"
        )]
        let milli = (share.clamp(0.0, 1.0) * 1000.0).round() as u64;
        Ok(Self::of(milli, WHOLE))
    }
}

impl JsonSchema for Share {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        f64::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        f64::json_schema(generator)
    }
}

/// Use of CPU and memory between the last two pulls. Each share is from 0 to 1, and absent if the
/// pages do not show it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestUsage {
    /// CPU time that the infra node gave to others while the guest was ready to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_steal: Option<Share>,
    /// CPU time in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_used: Option<Share>,
    /// Time in which a task of the guest waited for a CPU (pressure stall information, `some`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<Share>,
    /// Time in which a task of the guest waited for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<Share>,
    /// Time in which a task of the guest waited for I/O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_pressure: Option<Share>,
    /// Memory that is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_available: Option<Share>,
}

/// One page of a guest, as far as usage depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsagePage {
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) counters: UsageCounters,
    /// CPUs that the page names.
    pub(crate) cpus: u64,
}

impl UsagePage {
    /// Whether shares since `before` would be noise. Not if the clock was set back: then `before`
    /// is of no use any more.
    pub(crate) fn is_too_soon_after(self, before: Self) -> bool {
        let elapsed = self.at_ms.checked_sub(before.at_ms);
        elapsed.is_some_and(|elapsed_ms| elapsed_ms < MIN_INTERVAL_MS)
    }
}

impl GuestUsage {
    /// The use between two pages of one boot of a guest. What does not fit the time between them is
    /// left out.
    pub(crate) fn between(before: UsagePage, now: UsagePage) -> Self {
        let elapsed_ms = now.at_ms.saturating_sub(before.at_ms);
        if !(MIN_INTERVAL_MS..=MAX_INTERVAL_MS).contains(&elapsed_ms) {
            return Self::default();
        }
        let pressure = |before: Option<u32>, now: Option<u32>| {
            let waited_ms = u64::from(now?.wrapping_sub(before?));
            // The guest's clock and the time of the pulls differ a little.
            (waited_ms <= elapsed_ms + elapsed_ms / 2).then(|| Share::of(waited_ms, elapsed_ms))
        };
        let cpu = cpu_shares(before, now, elapsed_ms);
        let (then, now) = (before.counters, now.counters);
        Self {
            cpu_steal: cpu.map(|(steal, _)| steal),
            cpu_used: cpu.map(|(_, used)| used),
            cpu_pressure: pressure(then.cpu_waiting_ms, now.cpu_waiting_ms),
            memory_pressure: pressure(then.memory_waiting_ms, now.memory_waiting_ms),
            io_pressure: pressure(then.io_waiting_ms, now.io_waiting_ms),
            memory_available: None,
        }
    }

    /// The same with the memory that is available.
    pub(crate) fn with_memory(self, available: Option<f64>, total: Option<f64>) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the casts saturate"
        )]
        let share = |available: f64, total: f64| Share::of(available as u64, total as u64);
        let pair = available.zip(total.filter(|total| *total >= 1.0));
        Self {
            memory_available: pair.map(|(available, total)| share(available, total)),
            ..self
        }
    }

    /// A share in thousandths; 0 if it is not known.
    pub fn milli(share: Option<Share>) -> u16 {
        share.map_or(0, Share::milli)
    }
}

/// Steal and use of all CPUs; none if the counters went backwards or do not fit the time.
fn cpu_shares(before: UsagePage, now: UsagePage, elapsed_ms: u64) -> Option<(Share, Share)> {
    let (then, cpu) = (before.counters.cpu?, now.counters.cpu?);
    let since = |now: u32, then: u32| u64::from(now.wrapping_sub(then));
    let total = since(cpu.total_ms, then.total_ms);
    let (idle, steal) = (
        since(cpu.idle_ms, then.idle_ms),
        since(cpu.steal_ms, then.steal_ms),
    );
    let expected = elapsed_ms.saturating_mul(now.cpus);
    let is_plausible = before.cpus == now.cpus
        && (expected / 2..=expected + expected / 2).contains(&total)
        && total > 0
        && idle + steal <= total + total / 100;
    let used = total.saturating_sub(idle + steal);
    is_plausible.then(|| (Share::of(steal, total), Share::of(used, total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(at_ms: u64, cpus: u64, total: u32, idle: u32, steal: u32) -> UsagePage {
        UsagePage {
            at_ms,
            counters: UsageCounters {
                cpu: Some(CpuCounters {
                    total_ms: total,
                    idle_ms: idle,
                    steal_ms: steal,
                }),
                cpu_waiting_ms: Some(total),
                memory_waiting_ms: None,
                io_waiting_ms: Some(steal),
            },
            cpus,
        }
    }

    #[test]
    fn shares_are_differences_also_over_a_wrap() {
        for start in [0, u32::MAX - 100, u32::MAX] {
            let before = page(0, 2, start, start, start);
            let now = page(
                30_000,
                2,
                start.wrapping_add(60_000),
                start.wrapping_add(30_000),
                start.wrapping_add(6_000),
            );
            let usage = GuestUsage::between(before, now);
            assert_eq!(usage.cpu_steal.unwrap().percent(), 10);
            assert_eq!(usage.cpu_used.unwrap().percent(), 40);
            assert_eq!(usage.io_pressure.unwrap().percent(), 20);
            assert_eq!(usage.cpu_pressure, None, "more than the time that has passed");
            assert_eq!(usage.memory_pressure, None);
        }
    }

    #[test]
    fn implausible_counters_give_nothing() {
        let before = page(1_000, 2, 100_000, 50_000, 5_000);
        for (why, now) in [
            ("backwards", page(31_000, 2, 50_000, 20_000, 0)),
            ("too soon", page(2_000, 2, 102_000, 51_000, 5_100)),
            ("too late", page(400_000, 2, 900_000, 450_000, 5_100)),
            ("before", page(0, 2, 160_000, 80_000, 5_100)),
            ("more than its time", page(31_000, 2, 900_000, 50_000, 5_000)),
            ("another number of CPUs", page(31_000, 4, 220_000, 80_000, 5_000)),
            (
                "parts larger than the sum",
                page(31_000, 2, 160_000, 150_000, 5_000),
            ),
            ("steal backwards", page(31_000, 2, 160_000, 80_000, 4_000)),
        ] {
            let usage = GuestUsage::between(before, now);
            assert_eq!((usage.cpu_steal, usage.cpu_used), (None, None), "{why}");
        }
    }

    #[test]
    fn a_share_is_small_and_its_json_is_a_ratio() {
        assert_eq!(size_of::<GuestUsage>(), 12);
        assert!(size_of::<UsageCounters>() <= 40);
        assert_eq!((Share::of(0, 0).milli(), Share::of(5, 2).milli()), (0, 1000));
        let usage = GuestUsage::default().with_memory(Some(1e9), Some(4e9));
        let text = serde_json::to_string(&usage).unwrap();
        assert_eq!(text, r#"{"memoryAvailable":0.25}"#);
        assert_eq!(serde_json::from_str::<GuestUsage>(&text).unwrap(), usage);
        assert_eq!(
            GuestUsage::default().with_memory(Some(1.0), Some(0.0)),
            GuestUsage::default()
        );
        assert_eq!(
            GuestUsage::default()
                .with_memory(Some(f64::NAN), Some(4e9))
                .memory_available,
            Some(Share::of(0, 1))
        );
    }
}
