//! When each VM is pulled: on a fixed beat with a phase of its own, so that the fleet is spread evenly over the interval
//! and a slow pull never shifts the next.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, Instant},
};

use virtfleet_wire::ids::VmKey;

/// The beat of all VMs. Pure: the time is passed in.
#[derive(Debug)]
pub struct Schedule {
    interval: Duration,
    epoch: Instant,
    slots: HashMap<VmKey, Slot>,
    queue: BTreeSet<(Instant, VmKey)>,
}

#[derive(Debug)]
struct Slot {
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting(Instant),
    /// Being pulled; whether it has changed meanwhile and wants another pull at once.
    Running {
        again: bool,
    },
}

/// A new VM is pulled within this, and a millisecond more for each VM that there is.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

impl Schedule {
    /// An empty schedule whose beat is counted from `epoch`.
    pub fn new(interval: Duration, epoch: Instant) -> Self {
        Self {
            interval,
            epoch,
            slots: HashMap::new(),
            queue: BTreeSet::new(),
        }
    }

    /// How many VMs are pulled.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A VM is new, or where it is dialled has changed: pull it soon.
    pub fn soon(&mut self, key: &VmKey, now: Instant) {
        let spread = self
            .interval
            .min(FIRST_WITHIN + Duration::from_millis(self.slots.len() as u64));
        let due = now + phase(key, spread);
        match self.slots.get_mut(key).map(|slot| &mut slot.state) {
            Some(State::Running { again }) => *again = true,
            Some(State::Waiting(at)) if *at <= due => {}
            Some(State::Waiting(at)) => {
                self.queue.remove(&(*at, key.clone()));
                *at = due;
                self.queue.insert((due, key.clone()));
            }
            None => {
                self.slots.insert(
                    key.clone(),
                    Slot {
                        state: State::Waiting(due),
                    },
                );
                self.queue.insert((due, key.clone()));
            }
        }
    }

    /// A VM is not pulled any more.
    pub fn remove(&mut self, key: &VmKey) {
        if let Some(Slot {
            state: State::Waiting(at),
        }) = self.slots.remove(key)
        {
            self.queue.remove(&(at, key.clone()));
        }
    }

    /// When the next pull is due.
    pub fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// The next VM that is due at `now`, and since when; it counts as running from here on.
    pub fn take(&mut self, now: Instant) -> Option<(VmKey, Instant)> {
        if self.next()? > now {
            return None;
        }
        let (due, key) = self.queue.pop_first()?;
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.state = State::Running { again: false };
        }
        Some((key, due))
    }

    /// A pull has ended: the next is on the beat, but not sooner than a quarter of the interval from `now`.
    pub fn done(&mut self, key: &VmKey, now: Instant) {
        let due = match self.slots.get(key).map(|slot| slot.state) {
            Some(State::Running { again: true }) => now,
            Some(State::Running { again: false }) => self.beat(key, now + self.interval / 4),
            Some(State::Waiting(_)) | None => return,
        };
        self.slots.insert(
            key.clone(),
            Slot {
                state: State::Waiting(due),
            },
        );
        self.queue.insert((due, key.clone()));
    }

    /// The first beat of `key` that is not before `after`.
    fn beat(&self, key: &VmKey, after: Instant) -> Instant {
        let interval = self.interval.as_nanos().max(1);
        let phase = phase(key, self.interval).as_nanos();
        let elapsed = after.saturating_duration_since(self.epoch).as_nanos();
        let beats = elapsed.saturating_sub(phase).div_ceil(interval);
        let offset = u64::try_from(phase + beats * interval).unwrap_or(u64::MAX);
        self.epoch + Duration::from_nanos(offset)
    }
}

/// The same part of `span` for the same VM every time.
fn phase(key: &VmKey, span: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(hasher.finish() % nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn key(n: usize) -> VmKey {
        VmKey {
            namespace: "ns".parse().unwrap(),
            name: format!("vm-{n}").parse().unwrap(),
        }
    }

    /// Runs the schedule for a while, every pull taking `took`; returns when each pull began.
    fn run(
        schedule: &mut Schedule,
        start: Instant,
        length: Duration,
        took: Duration,
    ) -> Vec<(VmKey, Duration)> {
        let mut begun = Vec::new();
        while let Some(at) = schedule.next().filter(|at| *at < start + length) {
            while let Some((key, _)) = schedule.take(at) {
                begun.push((key.clone(), at - start));
                schedule.done(&key, at + took);
            }
        }
        begun
    }

    #[test]
    fn every_vm_is_pulled_soon_and_then_once_an_interval_spread_evenly() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        (0..1000).for_each(|n| schedule.soon(&key(n), start));
        let begun = run(&mut schedule, start, INTERVAL * 11, Duration::from_millis(300));
        let first: Vec<_> = begun.iter().take(1000).collect();
        assert!(
            first.iter().all(|(_, at)| *at < Duration::from_secs(2)),
            "all within two seconds"
        );
        let of_one: Vec<_> = begun
            .iter()
            .filter(|(k, _)| *k == key(7))
            .map(|(_, at)| *at)
            .collect();
        assert!((11..=12).contains(&of_one.len()), "{of_one:?}");
        assert!(
            of_one[1..].windows(2).all(|pair| pair[0] + INTERVAL == pair[1]),
            "on the beat: {of_one:?}"
        );
        let busiest = (60..300)
            .map(|second| begun.iter().filter(|(_, at)| at.as_secs() == second).count())
            .max()
            .unwrap_or(0);
        assert!(busiest < 70, "{busiest} in one second, where 33 is even");
    }

    #[test]
    fn a_change_during_a_pull_leads_to_another_at_once() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        schedule.soon(&key(1), start);
        let (taken, _) = schedule.take(start + INTERVAL).unwrap();
        schedule.soon(&taken, start + INTERVAL);
        assert_eq!(schedule.next(), None, "it runs already");
        schedule.done(&taken, start + INTERVAL);
        assert_eq!(schedule.next(), Some(start + INTERVAL));
    }

    #[test]
    fn what_is_removed_while_it_runs_does_not_come_back() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        schedule.soon(&key(1), start);
        let (taken, _) = schedule.take(start + INTERVAL).unwrap();
        schedule.remove(&taken);
        schedule.done(&taken, start + INTERVAL);
        assert_eq!((schedule.next(), schedule.len()), (None, 0));
    }

    #[test]
    fn a_change_never_postpones_a_pull() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        schedule.soon(&key(1), start);
        let due = schedule.next().unwrap();
        schedule.soon(&key(1), start + Duration::from_secs(3));
        assert_eq!(schedule.next(), Some(due));
    }
}
