//! State of one VM that the cluster worker keeps between two reconcile runs.

use std::time::{Duration, Instant};

use backon::ExponentialBackoff;
use virtfleet_collector_core::labels::plan::LabelInput;
use virtfleet_wire::ids::NodeName;

use super::{
    condition_limits::ConditionWrites,
    confirmation::UnconfirmedChanges,
    ownership_conflicts::{ContestedLately, OwnershipConflicts},
    rate_limit::backoff,
    writer::NodeMetadata,
};

/// Maximum time for which the Node that the last request returned is preferred to the watched one.
const MAX_WATCH_LAG: Duration = Duration::from_secs(30);

/// State of one VM between two reconcile runs.
#[derive(Debug, Default)]
pub(super) struct ReconcileState {
    /// The Node as the last request returned it, while the watch has not caught up.
    pub(super) latest: Option<(NodeName, NodeMetadata, Instant)>,
    pub(super) conflicts: OwnershipConflicts,
    pub(super) contested_lately: ContestedLately,
    pub(super) unconfirmed: UnconfirmedChanges,
    pub(super) retries: Option<ExponentialBackoff>,
    /// No patch of the labels before this time: the last one was refused. Unlike
    /// [`Requeue::After`](super::work_queue::Requeue::After), it does not delay the conditions.
    pub(super) labels_not_before: Option<Instant>,
    pub(super) condition_writes: ConditionWrites,
}

impl ReconcileState {
    /// Replaces the Node in `input` with the one that the last request returned, until the watch
    /// has caught up.
    pub(super) fn overlay(&mut self, mut input: LabelInput, now: Instant) -> LabelInput {
        let Some((node, latest, since)) = &self.latest else {
            return input;
        };
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let watched = number(input.resource_version.as_deref());
        let versions = watched.zip(number(latest.resource_version.as_deref()));
        let caught_up = versions.map_or(
            input.resource_version == latest.resource_version,
            |(watched, latest)| watched >= latest,
        );
        let same_node = *node == input.node && latest.uid == input.node_uid;
        if caught_up || !same_node || now.duration_since(*since) > MAX_WATCH_LAG {
            self.latest = None;
            return input;
        }
        input.labels.clone_from(&latest.labels);
        input.owned.clone_from(&latest.owned);
        input.resource_version.clone_from(&latest.resource_version);
        input
    }

    /// Time until the next patch of the labels is allowed.
    pub(super) fn label_wait(&self, now: Instant) -> Option<Duration> {
        let wait = self.labels_not_before?.checked_duration_since(now)?;
        Some(wait).filter(|wait| !wait.is_zero())
    }

    /// The next pause after a failure: it grows from `min` to `max` with consecutive failures.
    pub(super) fn next_pause(&mut self, min: Duration, max: Duration) -> Duration {
        let pauses = self.retries.get_or_insert_with(|| backoff(min, max));
        pauses.next().unwrap_or(max)
    }
}
