//! Schedule of pulls: each VM at a fixed interval with its own phase, so that the fleet is spread
//! evenly over the interval and a slow pull never shifts the next one.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, Instant},
};

use virtfleet_wire::ids::VmKey;

/// Schedule of all VMs. Pure: the caller passes the time.
#[derive(Debug)]
pub struct Schedule {
    interval: Duration,
    epoch: Instant,
    slots: HashMap<VmKey, ScheduleSlot>,
    queue: BTreeSet<(Instant, VmKey)>,
}

#[derive(Debug)]
struct ScheduleSlot {
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting(Instant),
    /// Being pulled; the flag tells whether a change meanwhile requires another pull at once.
    Running {
        again: bool,
    },
}

/// Maximum delay of the first pull of a VM, plus a millisecond for each VM in the schedule.
const MAX_FIRST_DELAY: Duration = Duration::from_millis(500);

impl Schedule {
    /// An empty schedule whose intervals are counted from `epoch`.
    pub fn new(interval: Duration, epoch: Instant) -> Self {
        Self {
            interval,
            epoch,
            slots: HashMap::new(),
            queue: BTreeSet::new(),
        }
    }

    /// Number of VMs in the schedule.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Schedules a VM that is new or whose address has changed to be pulled soon.
    pub fn soon(&mut self, key: &VmKey, now: Instant) {
        let spread = self
            .interval
            .min(MAX_FIRST_DELAY + Duration::from_millis(self.slots.len() as u64));
        self.no_later_than(key, now + phase(key, spread));
    }

    /// Schedules a VM to be pulled at once: its agent has connected.
    pub fn at_once(&mut self, key: &VmKey, now: Instant) {
        self.no_later_than(key, now);
    }

    fn no_later_than(&mut self, key: &VmKey, due: Instant) {
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
                    ScheduleSlot {
                        state: State::Waiting(due),
                    },
                );
                self.queue.insert((due, key.clone()));
            }
        }
    }

    pub fn remove(&mut self, key: &VmKey) {
        if let Some(ScheduleSlot {
            state: State::Waiting(at),
        }) = self.slots.remove(key)
        {
            self.queue.remove(&(at, key.clone()));
        }
    }

    /// Time of the next pull.
    pub fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// The next VM that is due at `now` and its due time; it counts as running until
    /// [`Schedule::done`].
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

    /// Ends a pull: the next one is at the VM's next phase, but at least a quarter of the interval
    /// after `now`; or after `pause`, if that is sooner.
    pub fn done(&mut self, key: &VmKey, now: Instant, pause: Option<Duration>) {
        let due = match self.slots.get(key).map(|slot| slot.state) {
            Some(State::Running { again: true }) => now,
            Some(State::Running { again: false }) => {
                let in_phase = self.next_in_phase(key, now + self.interval / 4);
                pause.map_or(in_phase, |pause| in_phase.min(now + pause))
            }
            Some(State::Waiting(_)) | None => return,
        };
        self.slots.insert(
            key.clone(),
            ScheduleSlot {
                state: State::Waiting(due),
            },
        );
        self.queue.insert((due, key.clone()));
    }

    /// The first time in the phase of `key` that is not before `after`.
    fn next_in_phase(&self, key: &VmKey, after: Instant) -> Instant {
        let interval = self.interval.as_nanos().max(1);
        let phase = phase(key, self.interval).as_nanos();
        let elapsed = after.saturating_duration_since(self.epoch).as_nanos();
        let beats = elapsed.saturating_sub(phase).div_ceil(interval);
        let offset = u64::try_from(phase + beats * interval).unwrap_or(u64::MAX);
        self.epoch + Duration::from_nanos(offset)
    }
}

/// An offset within `span` that is always the same for a VM.
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

    /// Runs the schedule with pulls that take `took`; returns the start of each pull.
    fn run(
        schedule: &mut Schedule,
        start: Instant,
        length: Duration,
        took: Duration,
    ) -> Vec<(VmKey, Duration)> {
        let mut started = Vec::new();
        while let Some(at) = schedule.next().filter(|at| *at < start + length) {
            while let Some((key, _)) = schedule.take(at) {
                started.push((key.clone(), at - start));
                schedule.done(&key, at + took, None);
            }
        }
        started
    }

    #[test]
    fn every_vm_is_pulled_soon_and_then_evenly_once_per_interval() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        (0..1000).for_each(|n| schedule.soon(&key(n), start));
        let started = run(&mut schedule, start, INTERVAL * 11, Duration::from_millis(300));
        let first: Vec<_> = started.iter().take(1000).collect();
        assert!(
            first.iter().all(|(_, at)| *at < Duration::from_secs(2)),
            "all within two seconds"
        );
        let of_one: Vec<_> = started
            .iter()
            .filter(|(k, _)| *k == key(7))
            .map(|(_, at)| *at)
            .collect();
        assert!((11..=12).contains(&of_one.len()), "{of_one:?}");
        assert!(
            of_one[1..].windows(2).all(|pair| pair[0] + INTERVAL == pair[1]),
            "at the fixed interval: {of_one:?}"
        );
        let busiest = (60..300)
            .map(|second| started.iter().filter(|(_, at)| at.as_secs() == second).count())
            .max()
            .unwrap_or(0);
        assert!(busiest < 70, "{busiest} in one second, where the average is 33");
    }

    #[test]
    fn a_change_during_a_pull_causes_another_at_once() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        schedule.soon(&key(1), start);
        let (taken, _) = schedule.take(start + INTERVAL).unwrap();
        schedule.soon(&taken, start + INTERVAL);
        assert_eq!(schedule.next(), None, "the pull is already running");
        schedule.done(&taken, start + INTERVAL, None);
        assert_eq!(schedule.next(), Some(start + INTERVAL));
    }

    #[test]
    fn a_vm_whose_agent_connects_is_pulled_at_once() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        schedule.soon(&key(1), start);
        schedule.at_once(&key(1), start);
        schedule.at_once(&key(2), start);
        assert!(schedule.take(start).is_some() && schedule.take(start).is_some());
        schedule.at_once(&key(1), start);
        schedule.done(&key(1), start, None);
        assert_eq!(schedule.take(start).unwrap().0, key(1), "after the running pull");
    }

    #[test]
    fn a_pause_only_hastens_the_next_pull() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        for (pause, latest) in [(1, 1), (3600, 38)] {
            schedule.soon(&key(1), start);
            let (taken, _) = schedule.take(start + INTERVAL).unwrap();
            schedule.done(&taken, start + INTERVAL, Some(Duration::from_secs(pause)));
            let due = schedule.next().unwrap().duration_since(start + INTERVAL);
            assert!(due <= Duration::from_secs(latest), "{due:?}");
            schedule.remove(&taken);
        }
    }

    #[test]
    fn a_vm_removed_during_its_pull_is_not_scheduled_again() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        schedule.soon(&key(1), start);
        let (taken, _) = schedule.take(start + INTERVAL).unwrap();
        schedule.remove(&taken);
        schedule.done(&taken, start + INTERVAL, None);
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
