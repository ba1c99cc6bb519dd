//! `TimeSynced`: the guest's clock is right, by the collector's clock and by the guest's kernel.

use super::{evaluation::Evaluation, facts::HealthFacts, guest::no_report, verdict::HealthCause};

/// Difference of the guest's clock, in milliseconds, above which it is wrong.
const MAX_OFFSET_MS: u64 = 5_000;
/// Difference above which certificates and leases fail.
const CRITICAL_OFFSET_MS: u64 = 300_000;

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let (Some(answer), Some((at, _))) = (facts.fresh_answer(), facts.agent.answer) else {
        return no_report(facts);
    };
    let Some(guest_ms) = answer.report.realtime_ms else {
        return Evaluation::unknown(
            HealthCause::Guest,
            "ClockNotReported",
            "the report does not have the guest's time",
        );
    };
    // The report was made at some time between the dial and the last byte.
    let offset_ms = if guest_ms > at {
        guest_ms - at
    } else {
        at.saturating_sub(answer.took_ms).saturating_sub(guest_ms)
    };
    let next = "in the guest: timedatectl timesync-status, or chronyc tracking";
    // Rounded down to a power of ten, so that the text is stable.
    let shown = |ms: u64| format!("{} s", 10_u64.pow((ms / 1000).max(1).ilog10()));
    if offset_ms >= CRITICAL_OFFSET_MS {
        let message = format!(
            "the guest's clock is off by more than {}: certificates and leases fail",
            shown(offset_ms)
        );
        return Evaluation::critical(HealthCause::Guest, "ClockWrong", message).next(next);
    }
    if offset_ms >= MAX_OFFSET_MS {
        let message = format!("the guest's clock is off by more than {}", shown(offset_ms));
        return Evaluation::degraded(HealthCause::Guest, "ClockOff", message).next(next);
    }
    match answer.metrics.clock_synchronised {
        Some(false) => Evaluation::degraded(
            HealthCause::Guest,
            "ClockNotSynchronised",
            "the guest's kernel says that no program synchronises its clock; it is still right",
        )
        .next(next),
        Some(true) => Evaluation::holds("TimeSynced", "the guest's clock is right and synchronised"),
        None => Evaluation::holds("ClockRight", "the guest's clock agrees with the collector's"),
    }
}
