//! Work queue of one user cluster: which VMs to reconcile, and when.
//!
//! A VM is queued at most once and has at most one reconcile run at a time; a change during the run
//! queues the VM changed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use virtfleet_wire::ids::VmKey;

use super::reconciler::now;

/// Queue of VMs with a time at which each is due. Pure: the caller passes the time.
#[derive(Debug, Default)]
pub(super) struct DelayQueue {
    slots: HashMap<VmKey, QueueEntry>,
    due: BTreeSet<(Instant, VmKey)>,
    pushed: BTreeSet<VmKey>,
}

#[derive(Debug)]
struct QueueEntry {
    state: QueueEntryState,
    /// Not due before this time: the VM's Node was just patched, or the last run failed.
    not_before: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueEntryState {
    Waiting(Instant),
    Running {
        /// Whether the VM changed during the run.
        changed: bool,
    },
    Idle,
}

/// When to reconcile a VM again after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requeue {
    /// When it changes.
    OnChange,
    /// After this time, or earlier when it changes.
    Recheck(Duration),
    /// After this time, and not before, also when it changes.
    After(Duration),
    /// When it changes, but not before this time has passed.
    OnChangeAfter(Duration),
    /// Never: the VM is gone, or has no Node.
    Forget,
}

impl Requeue {
    /// Also runs when `other` is due, which is no [`Requeue::After`].
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (one, Self::Forget) => one,
            (Self::OnChange | Self::Forget, other) => other,
            (Self::Recheck(one), Self::Recheck(other)) => Self::Recheck(one.min(other)),
            (Self::OnChangeAfter(pause), Self::Recheck(other)) => Self::Recheck(other.max(pause)),
            (one, _) => one,
        }
    }
}

impl DelayQueue {
    /// Number of VMs that are due, delayed or running.
    pub(super) fn len(&self) -> usize {
        let busy = self
            .slots
            .values()
            .filter(|slot| slot.state != QueueEntryState::Idle);
        busy.count()
    }

    /// Queues a VM, due as soon as its delay allows.
    pub(super) fn push(&mut self, key: &VmKey, now: Instant) {
        self.pushed.insert(key.clone());
        let slot = self.slots.entry(key.clone()).or_insert(QueueEntry {
            state: QueueEntryState::Idle,
            not_before: None,
        });
        let at = slot.not_before.map_or(now, |earliest| earliest.max(now));
        match &mut slot.state {
            QueueEntryState::Running { changed } => *changed = true,
            QueueEntryState::Waiting(due) if *due <= at => {}
            QueueEntryState::Waiting(due) => {
                self.due.remove(&(*due, key.clone()));
                slot.state = QueueEntryState::Waiting(at);
                self.due.insert((at, key.clone()));
            }
            QueueEntryState::Idle => {
                slot.state = QueueEntryState::Waiting(at);
                self.due.insert((at, key.clone()));
            }
        }
    }

    /// Makes every queued VM due at `now`: the cluster answers again.
    pub(super) fn make_all_due(&mut self, now: Instant) {
        let waiting = std::mem::take(&mut self.due);
        for (due, key) in waiting {
            let at = due.min(now);
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.state = QueueEntryState::Waiting(at);
                slot.not_before = None;
            }
            self.due.insert((at, key));
        }
    }

    /// VMs that were pushed since the last call and have not started.
    pub(super) fn take_pushed(&mut self) -> Vec<VmKey> {
        std::mem::take(&mut self.pushed).into_iter().collect()
    }

    /// The time at which the next VM is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Removes the next VM that is due at `now`; its run starts.
    pub(super) fn pop(&mut self, now: Instant) -> Option<VmKey> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.pushed.remove(&key);
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.state = QueueEntryState::Running { changed: false };
        }
        Some(key)
    }

    /// Ends the run of a VM.
    pub(super) fn finish(&mut self, key: &VmKey, requeue: Requeue, now: Instant) {
        let Some(slot) = self.slots.get_mut(key) else {
            return;
        };
        let QueueEntryState::Running { changed } = slot.state else {
            return;
        };
        slot.not_before = match requeue {
            Requeue::After(pause) | Requeue::OnChangeAfter(pause) => Some(now + pause),
            _ => None,
        };
        let due = match requeue {
            Requeue::Forget if !changed => {
                self.slots.remove(key);
                return;
            }
            Requeue::After(pause) => Some(now + pause),
            Requeue::OnChangeAfter(pause) => changed.then(|| now + pause),
            Requeue::Recheck(pause) => Some(if changed { now } else { now + pause }),
            Requeue::OnChange | Requeue::Forget => changed.then_some(now),
        };
        slot.state = due.map_or(QueueEntryState::Idle, QueueEntryState::Waiting);
        self.due.extend(due.map(|due| (due, key.clone())));
    }
}

/// The queue that the dispatcher shares with a cluster worker. Pushing never blocks.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    queue: Mutex<DelayQueue>,
    changed: Notify,
}

impl WorkQueue {
    /// Queues VMs for a reconcile run.
    pub(super) fn push<'a>(&self, keys: impl IntoIterator<Item = &'a VmKey>) {
        let mut queue = self.lock();
        for key in keys {
            queue.push(key, now());
        }
        drop(queue);
        self.changed.notify_one();
    }

    /// Waits until VMs are pushed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Locks the queue; for the worker.
    pub(super) fn lock(&self) -> MutexGuard<'_, DelayQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(name: &str) -> VmKey {
        VmKey {
            namespace: "ns".parse().unwrap(),
            name: name.parse().unwrap(),
        }
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn many_changes_cause_one_run_and_a_change_during_the_run_one_more() {
        let now = Instant::now();
        let mut queue = DelayQueue::default();
        for _ in 0..100 {
            queue.push(&key("a"), now);
        }
        assert_eq!(queue.pop(now), Some(key("a")));
        assert_eq!(queue.pop(now), None);
        for _ in 0..100 {
            queue.push(&key("a"), now);
        }
        assert_eq!(queue.pop(now), None, "one run at a time");
        queue.finish(&key("a"), Requeue::OnChange, now);
        assert_eq!(queue.pop(now), Some(key("a")));
        queue.finish(&key("a"), Requeue::OnChange, now);
        assert_eq!((queue.pop(now), queue.len(), queue.slots.len()), (None, 0, 1));
        queue.push(&key("a"), now);
        assert!(queue.pop(now).is_some());
        queue.finish(&key("a"), Requeue::Forget, now);
        assert!(queue.slots.is_empty());
    }

    #[test]
    fn a_change_waits_for_after_and_on_change_after_but_not_for_recheck() {
        let now = Instant::now();
        let mut queue = DelayQueue::default();
        let mut round = |next, changed| {
            queue.push(&key("a"), now);
            let taken = queue.next_due().unwrap();
            queue.pop(taken).unwrap();
            if changed {
                queue.push(&key("a"), now);
            }
            queue.finish(&key("a"), next, now);
            let due = queue.next_due().map(|due| due - now);
            // Empty the queue, so that the next round starts fresh.
            if let Some(due) = queue.next_due() {
                queue.pop(due).unwrap();
                queue.finish(&key("a"), Requeue::Forget, due);
            } else {
                queue.push(&key("a"), now);
                let due_if_changed = queue.next_due().unwrap() - now;
                queue.pop(queue.next_due().unwrap()).unwrap();
                queue.finish(&key("a"), Requeue::Forget, now);
                return (None, Some(due_if_changed));
            }
            (due, None)
        };
        assert_eq!(round(Requeue::OnChange, false), (None, Some(Duration::ZERO)));
        assert_eq!(round(Requeue::OnChangeAfter(5 * MS), false), (None, Some(5 * MS)));
        assert_eq!(round(Requeue::OnChangeAfter(5 * MS), true).0, Some(5 * MS));
        assert_eq!(round(Requeue::Recheck(5 * MS), false).0, Some(5 * MS));
        assert_eq!(round(Requeue::Recheck(5 * MS), true).0, Some(Duration::ZERO));
        assert_eq!(round(Requeue::After(5 * MS), true).0, Some(5 * MS));
        assert_eq!(round(Requeue::Forget, true).0, Some(Duration::ZERO));
    }

    proptest! {
        /// For every sequence of calls, no VM has two runs at a time, and no change is lost.
        #[test]
        fn one_run_at_a_time_and_no_lost_change(steps in prop::collection::vec((0_u8..5, 0_u8..4, 0_u8..5), 1..300)) {
            let start = Instant::now();
            let mut now = start;
            let mut queue = DelayQueue::default();
            let mut running: BTreeSet<VmKey> = BTreeSet::new();
            let mut pushed: BTreeSet<VmKey> = BTreeSet::new();
            let apply = |queue: &mut DelayQueue, running: &mut BTreeSet<VmKey>, pushed: &mut BTreeSet<VmKey>, step: (u8, u8, u8), now: Instant| {
                let vm = key(&format!("v{}", step.1));
                match step.0 {
                    0 | 1 => { queue.push(&vm, now); pushed.insert(vm); }
                    2 | 3 => if let Some(taken) = queue.pop(now) {
                        pushed.remove(&taken);
                        assert!(running.insert(taken), "two runs at a time");
                    },
                    _ => if running.remove(&vm) {
                        let next = [Requeue::OnChange, Requeue::Recheck(3 * MS), Requeue::After(2 * MS), Requeue::OnChangeAfter(4 * MS), Requeue::Forget];
                        queue.finish(&vm, next[usize::from(step.2)], now);
                    },
                }
            };
            for step in steps {
                now += MS;
                apply(&mut queue, &mut running, &mut pushed, step, now);
            }
            for vm in running.clone() {
                queue.finish(&vm, Requeue::OnChange, now);
            }
            while let Some(due) = queue.next_due() {
                let vm = queue.pop(due).unwrap();
                pushed.remove(&vm);
                queue.finish(&vm, Requeue::OnChange, due);
            }
            prop_assert!(pushed.is_empty(), "lost: {pushed:?}");
        }
    }
}
