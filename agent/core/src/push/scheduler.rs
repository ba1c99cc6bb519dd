//! Decides when the agent connects to the collector. Pure: the caller passes times, since any
//! origin, and random numbers.

use std::time::Duration;

/// Time over which the first attempts of many agents are spread, as a part of `push.after`.
const SPREAD_DIVISOR: u32 = 9;
/// Minimum of that time.
const MIN_SPREAD: Duration = Duration::from_secs(1);
/// Maximum of that time. A collector that restarts loses all agents in the same moment.
const MAX_SPREAD: Duration = Duration::from_secs(10);
/// First delay after a failure of the first attempt.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Maximum delay after a failure.
const MAX_DELAY: Duration = Duration::from_mins(1);
/// Failures after which the delay no longer grows.
const MAX_DOUBLINGS: u32 = 6;

/// What the agent does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushAction {
    /// Nothing before this time, unless a collector pulls.
    WaitUntil(Duration),
    /// Open a connection. The caller reports the result with [`PushScheduler::failed`], or with
    /// [`PushScheduler::ended`] when the connection has ended.
    Connect,
    /// Keep the connection, or the attempt.
    Keep,
    /// Give up the connection, or the attempt: a collector has pulled directly since. The caller
    /// then calls [`PushScheduler::closed`].
    Close,
}

/// Decides when to connect.
#[derive(Debug)]
pub struct PushScheduler {
    after: Duration,
    started: Duration,
    last_direct: Option<Duration>,
    state: ConnectionState,
    /// Consecutive connections that led to no pull.
    failures: u32,
}

#[derive(Debug, Clone, Copy)]
enum ConnectionState {
    None { not_before: Duration },
    Open { since: Duration },
}

impl PushScheduler {
    /// A scheduler for an agent that starts at `now`, and connects if no collector has pulled
    /// directly for `after`.
    pub fn new(after: Duration, now: Duration) -> Self {
        Self {
            after,
            started: now,
            last_direct: None,
            state: ConnectionState::None { not_before: now },
            failures: 0,
        }
    }

    /// A collector that dialled this agent pulled at this time.
    pub fn pulled_directly(&mut self, at: Duration) {
        if self.last_direct.is_some_and(|last| at <= last) {
            return;
        }
        self.last_direct = Some(at);
        if let ConnectionState::None { not_before } = &mut self.state {
            (self.failures, *not_before) = (0, at);
        }
    }

    /// What to do at `now`. After [`PushAction::Connect`] the attempt counts as a connection.
    pub fn next(&mut self, now: Duration) -> PushAction {
        match self.state {
            ConnectionState::None { not_before } => {
                let unpulled_since = self.last_direct.unwrap_or(self.started);
                let due = not_before.max(unpulled_since.saturating_add(self.after));
                if now < due {
                    return PushAction::WaitUntil(due);
                }
                self.state = ConnectionState::Open { since: now };
                PushAction::Connect
            }
            ConnectionState::Open { since } if self.last_direct.is_some_and(|at| at >= since) => {
                PushAction::Close
            }
            ConnectionState::Open { .. } => PushAction::Keep,
        }
    }

    /// The attempt failed, or the connection ended without a pull. `random` spreads the next
    /// attempts of many agents.
    pub fn failed(&mut self, now: Duration, random: u32) {
        let delay = match self.failures.checked_sub(1) {
            None => full_jitter(self.spread(), random),
            Some(earlier) => backoff(earlier, random),
        };
        self.retry(now.saturating_add(delay));
    }

    /// The connection ended after at least one pull: the collector may have restarted, and then all
    /// agents connect again.
    pub fn ended(&mut self, now: Duration, random: u32) {
        self.failures = 0;
        self.failed(now, random);
    }

    /// The connection ended after the collector had issued the agent's certificate, and the
    /// collector expects the agent again.
    pub fn enrolled(&mut self, now: Duration, random: u32) {
        self.failures = 0;
        self.retry(now.saturating_add(backoff(0, random)));
    }

    fn retry(&mut self, not_before: Duration) {
        self.state = ConnectionState::None { not_before };
        self.failures = self.failures.saturating_add(1);
    }

    /// Time over which the first attempts after a connection are spread. An admin who chooses a
    /// short `push.after` wants a short gap.
    fn spread(&self) -> Duration {
        (self.after / SPREAD_DIVISOR).clamp(MIN_SPREAD, MAX_SPREAD)
    }

    /// The connection was closed because a collector pulls directly.
    pub fn closed(&mut self, now: Duration) {
        self.failures = 0;
        self.state = ConnectionState::None { not_before: now };
    }

    /// True if the agent waits to connect again, and not because a collector pulls.
    pub fn is_retrying(&self) -> bool {
        self.failures > 0 && matches!(self.state, ConnectionState::None { .. })
    }
}

/// Delay after `earlier` earlier failures: it doubles from [`FIRST_DELAY`] to [`MAX_DELAY`], and
/// `random` decides between half and all of it.
fn backoff(earlier: u32, random: u32) -> Duration {
    let doubled = FIRST_DELAY.saturating_mul(1 << earlier.min(MAX_DOUBLINGS));
    let half = doubled.min(MAX_DELAY) / 2;
    half + full_jitter(half, random)
}

/// A time between zero and `all`.
fn full_jitter(all: Duration, random: u32) -> Duration {
    all.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AFTER: Duration = Duration::from_secs(90);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_agent_that_is_pulled_never_connects() {
        let mut push = PushScheduler::new(AFTER, at(5));
        assert_eq!(push.next(at(5)), PushAction::WaitUntil(at(95)));
        for second in (30..3000).step_by(30) {
            push.pulled_directly(at(second));
            assert_eq!(push.next(at(second)), PushAction::WaitUntil(at(second + 90)));
        }
        assert_eq!(push.next(at(2970 + 90)), PushAction::Connect);
    }

    #[test]
    fn the_first_retry_is_spread_and_delays_double_to_a_minute() {
        let mut push = PushScheduler::new(AFTER, at(0));
        let mut now = at(90);
        let mut waits = Vec::new();
        for _ in 0..9 {
            assert_eq!(push.next(now), PushAction::Connect);
            assert_eq!(push.next(now), PushAction::Keep);
            push.failed(now, u32::MAX);
            assert!(push.is_retrying());
            let PushAction::WaitUntil(due) = push.next(now) else {
                panic!("no wait")
            };
            waits.push(due.saturating_sub(now).as_secs());
            now = due;
        }
        assert_eq!(waits, [10, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(push.next(now), PushAction::Connect);
        // A used connection starts again.
        push.ended(now, 0);
        assert_eq!(push.next(now), PushAction::Connect);
        push.ended(now, u32::MAX);
        assert_eq!(push.next(now), PushAction::WaitUntil(now + at(10)));
    }

    #[test]
    fn an_enrolled_agent_connects_again_within_a_second() {
        let mut push = PushScheduler::new(AFTER, at(0));
        for (random, milliseconds) in [(0, 500), (u32::MAX, 1000)] {
            assert_eq!(push.next(at(90)), PushAction::Connect);
            push.enrolled(at(89), random);
            let due = at(89) + Duration::from_millis(milliseconds);
            assert_eq!(push.next(at(89)), PushAction::WaitUntil(due.max(at(90))));
        }
    }

    #[test]
    fn the_spread_follows_the_setting_within_bounds() {
        for (after, spread) in [(1, 1), (45, 5), (90, 10), (3600, 10)] {
            let mut push = PushScheduler::new(at(after), at(0));
            assert_eq!(push.next(at(after)), PushAction::Connect);
            push.ended(at(after), u32::MAX);
            let due = at(after + spread);
            assert_eq!(push.next(at(after)), PushAction::WaitUntil(due), "{after}");
        }
    }

    #[test]
    fn a_direct_pull_closes_the_connection_and_ends_the_retries() {
        let mut push = PushScheduler::new(AFTER, at(0));
        assert_eq!(push.next(at(90)), PushAction::Connect);
        push.pulled_directly(at(100));
        assert_eq!(push.next(at(100)), PushAction::Close);
        push.closed(at(101));
        assert_eq!(push.next(at(101)), PushAction::WaitUntil(at(190)));
        assert_eq!(push.next(at(190)), PushAction::Connect);
        push.failed(at(190), 0);
        push.pulled_directly(at(190));
        assert!(!push.is_retrying());
        assert_eq!(push.next(at(191)), PushAction::WaitUntil(at(280)));
    }

    /// What happens to an agent, after a time.
    #[derive(Debug, Clone, Copy)]
    enum Happening {
        DirectPull,
        Fails(u32),
        EndsUsed(u32),
        Nothing,
    }

    fn happenings() -> impl Strategy<Value = Vec<(u64, Happening)>> {
        let happening = prop_oneof![
            Just(Happening::DirectPull),
            any::<u32>().prop_map(Happening::Fails),
            any::<u32>().prop_map(Happening::EndsUsed),
            Just(Happening::Nothing),
        ];
        proptest::collection::vec((0u64..200_000, happening), 1..60)
    }

    proptest! {
        #[test]
        fn one_connection_at_most_and_only_without_direct_pulls(events in happenings()) {
            let mut push = PushScheduler::new(AFTER, Duration::ZERO);
            let (mut now, mut open, mut last_direct) = (Duration::ZERO, None, None);
            for (milliseconds, event) in events {
                now += Duration::from_millis(milliseconds);
                match (event, open) {
                    (Happening::DirectPull, _) => {
                        push.pulled_directly(now);
                        last_direct = Some(now);
                    }
                    (Happening::Fails(random), Some(_)) => {
                        push.failed(now, random);
                        open = None;
                    }
                    (Happening::EndsUsed(random), Some(_)) => {
                        push.ended(now, random);
                        open = None;
                    }
                    _ => {}
                }
                match push.next(now) {
                    PushAction::Connect => {
                        prop_assert!(open.is_none(), "two connections");
                        prop_assert!(now >= last_direct.unwrap_or_default() + AFTER);
                        open = Some(now);
                    }
                    PushAction::Keep => {
                        let since = open.expect("a connection");
                        prop_assert!(last_direct.is_none_or(|at| at < since));
                    }
                    PushAction::Close => {
                        prop_assert!(last_direct >= open);
                        push.closed(now);
                        open = None;
                    }
                    PushAction::WaitUntil(due) => {
                        prop_assert!(open.is_none() && due > now);
                        let longest = last_direct.unwrap_or_default() + AFTER;
                        prop_assert!(due <= longest.max(now + MAX_DELAY), "{due:?}");
                    }
                }
            }
        }

        #[test]
        fn every_delay_is_between_half_and_all(failures in 0u32..100, random in any::<u32>()) {
            let all = Duration::from_secs(1 << failures.min(6)).min(MAX_DELAY);
            let drawn = backoff(failures, random);
            prop_assert!(drawn >= all / 2 && drawn <= all, "{drawn:?} of {all:?}");
        }
    }
}
