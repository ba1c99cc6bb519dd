//! Which VMs of one user cluster are to be looked at, and when. Pure: the time is passed in.
//!
//! A VM is in it at most once, and is handed out to one at a time: what changes meanwhile is looked at once more afterwards.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use virtfleet_wire::ids::VmKey;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    slots: HashMap<VmKey, Slot>,
    due: BTreeSet<(Instant, VmKey)>,
    pushed: BTreeSet<VmKey>,
}

#[derive(Debug)]
struct Slot {
    state: State,
    /// It is not handed out before: it was just written to, or has just failed.
    not_before: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting(Instant),
    /// Handed out; whether it changed meanwhile.
    Out {
        again: bool,
    },
    Resting,
}

/// What is to become of a VM that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until it changes.
    Rest,
    /// Look at it again after this time, or when it changes, whatever comes first.
    Recheck(Duration),
    /// Look at it again after this time, and not before, whatever changes.
    After(Duration),
    /// Not before this time has passed, and then only when it has changed.
    RestFor(Duration),
    /// It is gone.
    Forget,
}

impl Queue {
    /// VMs that wait or are handed out.
    pub(super) fn len(&self) -> usize {
        let busy = self.slots.values().filter(|slot| slot.state != State::Resting);
        busy.count()
    }

    /// A VM is to be looked at, as soon as it may.
    pub(super) fn push(&mut self, key: &VmKey, now: Instant) {
        self.pushed.insert(key.clone());
        let slot = self.slots.entry(key.clone()).or_insert(Slot {
            state: State::Resting,
            not_before: None,
        });
        let at = slot.not_before.map_or(now, |earliest| earliest.max(now));
        match &mut slot.state {
            State::Out { again } => *again = true,
            State::Waiting(due) if *due <= at => {}
            State::Waiting(due) => {
                self.due.remove(&(*due, key.clone()));
                slot.state = State::Waiting(at);
                self.due.insert((at, key.clone()));
            }
            State::Resting => {
                slot.state = State::Waiting(at);
                self.due.insert((at, key.clone()));
            }
        }
    }

    /// Everybody who waits may be handed out at `now`: the cluster answers again.
    pub(super) fn hurry(&mut self, now: Instant) {
        let waiting = std::mem::take(&mut self.due);
        for (due, key) in waiting {
            let at = due.min(now);
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.state = State::Waiting(at);
                slot.not_before = None;
            }
            self.due.insert((at, key));
        }
    }

    /// VMs that were pushed since this was asked last.
    pub(super) fn unseen(&mut self) -> Vec<VmKey> {
        std::mem::take(&mut self.pushed).into_iter().collect()
    }

    /// When the next VM is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Hands out the next VM that is due at `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<VmKey> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.pushed.remove(&key);
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.state = State::Out { again: false };
        }
        Some(key)
    }

    /// A VM that was handed out is back.
    pub(super) fn done(&mut self, key: &VmKey, next: Next, now: Instant) {
        let Some(slot) = self.slots.get_mut(key) else {
            return;
        };
        let State::Out { again } = slot.state else { return };
        slot.not_before = match next {
            Next::After(pause) | Next::RestFor(pause) => Some(now + pause),
            _ => None,
        };
        let due = match next {
            Next::Forget if !again => {
                self.slots.remove(key);
                return;
            }
            Next::After(pause) => Some(now + pause),
            Next::RestFor(pause) => again.then(|| now + pause),
            Next::Recheck(pause) => Some(if again { now } else { now + pause }),
            Next::Rest | Next::Forget => again.then_some(now),
        };
        slot.state = due.map_or(State::Resting, State::Waiting);
        self.due.extend(due.map(|due| (due, key.clone())));
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
    fn many_changes_are_one_look_and_a_change_while_it_is_out_is_one_more() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for _ in 0..100 {
            queue.push(&key("a"), now);
        }
        assert_eq!(queue.take(now), Some(key("a")));
        assert_eq!(queue.take(now), None);
        for _ in 0..100 {
            queue.push(&key("a"), now);
        }
        assert_eq!(queue.take(now), None, "one at a time");
        queue.done(&key("a"), Next::Rest, now);
        assert_eq!(queue.take(now), Some(key("a")));
        queue.done(&key("a"), Next::Rest, now);
        assert_eq!((queue.take(now), queue.len(), queue.slots.len()), (None, 0, 1));
        queue.push(&key("a"), now);
        assert!(queue.take(now).is_some());
        queue.done(&key("a"), Next::Forget, now);
        assert!(queue.slots.is_empty());
    }

    #[test]
    fn what_was_just_written_waits_and_what_is_rechecked_does_not() {
        let now = Instant::now();
        let mut queue = Queue::default();
        let mut round = |next, changed| {
            queue.push(&key("a"), now);
            let taken = queue.next().unwrap();
            queue.take(taken).unwrap();
            if changed {
                queue.push(&key("a"), now);
            }
            queue.done(&key("a"), next, now);
            let due = queue.next().map(|due| due - now);
            // Whatever is left is taken, so that the next round begins afresh.
            if let Some(due) = queue.next() {
                queue.take(due).unwrap();
                queue.done(&key("a"), Next::Forget, due);
            } else {
                queue.push(&key("a"), now);
                let due_if_changed = queue.next().unwrap() - now;
                queue.take(queue.next().unwrap()).unwrap();
                queue.done(&key("a"), Next::Forget, now);
                return (None, Some(due_if_changed));
            }
            (due, None)
        };
        assert_eq!(round(Next::Rest, false), (None, Some(Duration::ZERO)));
        assert_eq!(round(Next::RestFor(5 * MS), false), (None, Some(5 * MS)));
        assert_eq!(round(Next::RestFor(5 * MS), true).0, Some(5 * MS));
        assert_eq!(round(Next::Recheck(5 * MS), false).0, Some(5 * MS));
        assert_eq!(round(Next::Recheck(5 * MS), true).0, Some(Duration::ZERO));
        assert_eq!(round(Next::After(5 * MS), true).0, Some(5 * MS));
        assert_eq!(round(Next::Forget, true).0, Some(Duration::ZERO));
    }

    proptest! {
        /// Whatever happens, no VM is out twice, and none that changed is lost.
        #[test]
        fn never_twice_and_never_lost(steps in prop::collection::vec((0_u8..5, 0_u8..4, 0_u8..5), 1..300)) {
            let start = Instant::now();
            let mut now = start;
            let mut queue = Queue::default();
            let mut out: BTreeSet<VmKey> = BTreeSet::new();
            let mut unseen: BTreeSet<VmKey> = BTreeSet::new();
            let turn = |queue: &mut Queue, out: &mut BTreeSet<VmKey>, unseen: &mut BTreeSet<VmKey>, step: (u8, u8, u8), now: Instant| {
                let vm = key(&format!("v{}", step.1));
                match step.0 {
                    0 | 1 => { queue.push(&vm, now); unseen.insert(vm); }
                    2 | 3 => if let Some(taken) = queue.take(now) {
                        unseen.remove(&taken);
                        assert!(out.insert(taken), "out twice");
                    },
                    _ => if out.remove(&vm) {
                        let next = [Next::Rest, Next::Recheck(3 * MS), Next::After(2 * MS), Next::RestFor(4 * MS), Next::Forget];
                        queue.done(&vm, next[usize::from(step.2)], now);
                    },
                }
            };
            for step in steps {
                now += MS;
                turn(&mut queue, &mut out, &mut unseen, step, now);
            }
            for vm in out.clone() {
                queue.done(&vm, Next::Rest, now);
            }
            while let Some(due) = queue.next() {
                let vm = queue.take(due).unwrap();
                unseen.remove(&vm);
                queue.done(&vm, Next::Rest, due);
            }
            prop_assert!(unseen.is_empty(), "lost: {unseen:?}");
        }
    }
}
