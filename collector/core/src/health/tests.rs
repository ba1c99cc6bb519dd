//! Properties of held conditions, and the order of blame.

use proptest::prelude::*;

use super::{
    evaluation::{Evaluation, HealthCondition, Urgency},
    hold::{HeldCondition, HoldTimes},
    verdict::{HealthCause, HealthVerdict},
};

/// An evaluation of each severity; the number distinguishes reasons.
fn evaluation(severity: u8, reason: u8, immediate: bool) -> Evaluation {
    let reason = ["A", "B"][usize::from(reason % 2)];
    let made = match severity % 4 {
        0 => Evaluation::holds(reason, "m"),
        1 => Evaluation::unknown(HealthCause::Agent, reason, "m"),
        2 => Evaluation::degraded(HealthCause::Guest, reason, "m"),
        _ => Evaluation::critical(HealthCause::Vm, reason, "m"),
    };
    if immediate { made.immediate() } else { made }
}

/// Times in seconds between observations, and what is observed.
fn history(immediate: bool) -> impl Strategy<Value = Vec<(u64, Evaluation)>> {
    let immediate = any::<bool>().prop_map(move |one| one && immediate);
    let one = (0..40_u64, any::<u8>(), any::<u8>(), immediate)
        .prop_map(|(after, severity, reason, immediate)| (after, evaluation(severity, reason, immediate)));
    prop::collection::vec(one, 1..200)
}

fn conditions() -> impl Strategy<Value = HealthCondition> {
    prop::sample::select(HealthCondition::ALL.to_vec())
}

proptest! {
    #[test]
    fn nothing_flaps(condition in conditions(), history in history(false)) {
        let times = HoldTimes::of(condition);
        let mut now = 0;
        let mut held = HeldCondition::new(times, history[0].1.clone(), now);
        // The last changes to worse, and to better from a problem.
        let (mut worse, mut better) = (None, None);
        let mut shown = held.shown().severity;
        for (after, present) in history {
            now += after * 1000;
            held.observe(present, true, now);
            let next = held.shown().severity;
            if next > shown {
                let before: Option<u64> = worse.replace(now);
                prop_assert!(before.is_none_or(|before| now - before >= times.worse_ms));
            } else if next < shown && shown > HealthVerdict::Unknown {
                let before: Option<u64> = better.replace(now);
                prop_assert!(before.is_none_or(|before| now - before >= times.better_ms));
            }
            shown = next;
        }
    }

    #[test]
    fn what_lasts_is_shown(condition in conditions(), history in history(true)) {
        let times = HoldTimes::of(condition);
        let mut now = 0;
        let mut held = HeldCondition::new(times, history[0].1.clone(), now);
        for (after, present) in &history {
            now += after * 1000;
            held.observe(present.clone(), true, now);
        }
        let (_, last) = history.last().unwrap();
        if let Some(due) = held.due_ms() {
            prop_assert!(due <= now + times.worse_ms.max(times.better_ms));
            now = now.max(due);
        }
        held.observe(last.clone(), true, now);
        prop_assert_eq!(held.shown(), last, "the time that is due is enough");
        prop_assert_eq!(held.due_ms(), None);
    }

    #[test]
    fn an_immediate_fact_is_shown_at_once(condition in conditions(), history in history(true)) {
        let mut now = 0;
        let mut held = HeldCondition::new(HoldTimes::of(condition), history[0].1.clone(), now);
        for (after, present) in history {
            now += after * 1000;
            let (is_immediate, severity) = (present.urgency == Urgency::Immediate, present.severity);
            held.observe(present, true, now);
            prop_assert!(!is_immediate || held.shown().severity >= severity);
        }
    }
}

#[test]
fn a_change_that_reverts_is_not_shown() {
    let times = HoldTimes::of(HealthCondition::AgentReporting);
    let (up, silent) = (evaluation(0, 0, false), evaluation(2, 0, false));
    let mut held = HeldCondition::new(times, up.clone(), 0);
    for now in [0, 89_000] {
        held.observe(silent.clone(), true, now);
        assert_eq!(held.shown(), &up);
    }
    held.observe(up.clone(), true, 89_500);
    held.observe(silent.clone(), true, 90_000);
    assert_eq!((held.shown(), held.due_ms()), (&up, Some(180_000)));
    held.observe(silent.clone(), true, 180_000);
    assert_eq!((held.shown(), held.since_ms()), (&silent, 180_000));
}

#[test]
fn every_time_is_at_most_the_maximum() {
    for condition in HealthCondition::ALL {
        let times = HoldTimes::of(condition);
        assert!(times.worse_ms.max(times.better_ms) <= HoldTimes::MAX_MS);
    }
}

#[test]
fn verdicts_and_causes_are_ordered() {
    assert!(HealthVerdict::ALL.windows(2).all(|two| two[0] > two[1]));
    assert!(HealthCause::ALL.windows(2).all(|two| two[0] < two[1]));
}
