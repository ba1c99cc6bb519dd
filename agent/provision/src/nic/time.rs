//! The time that a run over the network interfaces may take.

use std::time::Duration;

use super::change::STEADY_TIME;

/// Limit of a run over all interfaces, however many of them are broken.
pub(super) const MAX_RUN: Duration = Duration::from_mins(2);
/// With less time left no change is begun: a link has to come back twice, and to stay up twice.
const MIN_CHANGE: Duration = Duration::from_secs(5);
/// Time for everything but waiting: a driver that is busy, and the observations.
const OVERHEAD: Duration = Duration::from_secs(1);
/// Why a change was not begun. The stage's unit would be killed in the middle of it.
pub(super) const NO_TIME: &str =
    "there was no time left in this pass; the next one does it: sudo virtfleet-agent apply nic";

/// When a run began, by the clock of [`super::World::now`], and how long it may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    pub(super) began: Duration,
    pub(super) within: Duration,
}

impl Time {
    fn left(self, now: Duration) -> Duration {
        self.within.saturating_sub(now.saturating_sub(self.began))
    }

    /// How long a link may take to come back: at most `asked`, and short enough to leave as long
    /// for the rollback. None: there is no time for a change.
    pub(super) fn settle(self, now: Duration, asked: Duration) -> Option<Duration> {
        let left = self.left(now);
        let waiting = left.saturating_sub(STEADY_TIME * 2 + OVERHEAD);
        (left >= MIN_CHANGE).then(|| asked.min(waiting / 2))
    }
}
