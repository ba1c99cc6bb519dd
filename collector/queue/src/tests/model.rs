//! Random operations with restarts, against a list in memory.

use std::{collections::VecDeque, time::Duration};

use proptest::prelude::*;

use super::{FOLDER, SimulatedQueue, at, record, settings, stamp};
use crate::{
    DropReason, Dropped, Queue, QueueError, QueueSettings, Record,
    fakes::{DiskFaults, SimulatedDisk},
};

#[derive(Debug, Clone)]
enum Action {
    Append(usize),
    Front,
    Acknowledge,
    Sync,
    /// Time passes, in seconds.
    Expire(u64),
    Limits(u64),
    /// Ends the process and opens the queue again.
    Restart,
    /// From now on, the disk has this many bytes; 0 for no limit.
    Capacity(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        12 => (0_usize..6000).prop_map(Action::Append),
        6 => Just(Action::Front),
        6 => Just(Action::Acknowledge),
        2 => Just(Action::Sync),
        2 => (0_u64..900).prop_map(Action::Expire),
        1 => (3_u64..40).prop_map(|blocks| Action::Limits(blocks * 4096)),
        1 => Just(Action::Restart),
        1 => prop_oneof![Just(0), 4_000_usize..100_000].prop_map(Action::Capacity),
    ];
    prop::collection::vec(action, 1..120)
}

/// The queue, and what it must hold.
struct Compared {
    disk: SimulatedDisk,
    settings: QueueSettings,
    queue: Option<SimulatedQueue>,
    model: VecDeque<Record>,
    returned: Option<Record>,
    /// Dropped after it was returned; counted when the front is asked for again.
    unsettled: Option<Record>,
    /// To be counted in the next report.
    uncounted: Option<Record>,
    now: u64,
    accepted: u64,
}

impl Compared {
    fn new(settings: QueueSettings) -> Self {
        let mut compared = Self {
            disk: SimulatedDisk::default(),
            settings,
            queue: None,
            model: VecDeque::new(),
            returned: None,
            unsettled: None,
            uncounted: None,
            now: 0,
            accepted: 0,
        };
        compared.restart();
        compared
    }

    fn restart(&mut self) {
        self.queue = None;
        let opened = Queue::open_in(self.disk.clone(), FOLDER.as_ref(), self.settings, at(self.now));
        let (queue, recovery) = opened.unwrap();
        assert_eq!(recovery.torn_bytes, 0);
        assert_eq!(recovery.corrupt_bytes, 0);
        self.queue = Some(queue);
        (self.returned, self.unsettled, self.uncounted) = (None, None, None);
        self.accepted = 0;
        self.drop_from_model(&recovery.dropped);
    }

    /// Records with older samples are too old, in milliseconds.
    fn age_limit(&self) -> i64 {
        stamp(self.now) - i64::try_from(self.settings.max_age.as_millis()).unwrap()
    }

    fn queue(&mut self) -> &mut SimulatedQueue {
        self.queue.as_mut().unwrap()
    }

    /// The oldest records are gone, with as many samples as the queue says.
    fn drop_from_model(&mut self, dropped: &[Dropped]) {
        for dropped in dropped {
            assert_ne!(dropped.reason, DropReason::Corrupt);
        }
        let records: u64 = dropped.iter().map(|dropped| dropped.records).sum();
        let front = self.queue().front;
        let is_gone = |record: &Record| record.id.0 < front && self.model.front() == Some(record);
        if self.returned.as_ref().is_some_and(is_gone) {
            self.unsettled = self.model.pop_front();
        }
        let mut gone: Vec<Record> = self.uncounted.take_if(|_| records > 0).into_iter().collect();
        let others = usize::try_from(records).unwrap() - gone.len();
        gone.extend(self.model.drain(..others));
        let samples: u64 = gone.iter().map(|record| u64::from(record.head.samples)).sum();
        assert_eq!(
            samples,
            dropped.iter().map(|dropped| dropped.samples).sum::<u64>()
        );
        if dropped.iter().all(|dropped| dropped.reason == DropReason::TooOld) {
            let limit = self.age_limit();
            assert!(gone.iter().all(|record| record.head.newest_ms < limit));
        }
    }

    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Append(length) => {
                let number = self.queue().next_id().0;
                let mut record = record(number, length);
                (record.head.oldest_ms, record.head.newest_ms) = (stamp(self.now), stamp(self.now) + 1);
                let now = at(self.now);
                match self.queue().append(record.head, &record.body, now) {
                    Ok(dropped) => {
                        self.drop_from_model(&dropped);
                        self.model.push_back(record);
                    }
                    Err(QueueError::DiskFull { .. } | QueueError::TooLarge { .. }) => {
                        let dropped = self.queue().report();
                        self.drop_from_model(&dropped);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Action::Front => {
                self.uncounted = self.unsettled.take().or(self.uncounted.take());
                let found = self.queue().front().unwrap();
                assert_eq!(found.as_ref(), self.model.front());
                self.returned = found;
            }
            Action::Acknowledge => {
                let Some(record) = self.returned.take() else {
                    return;
                };
                match self.queue().acknowledge(record.id) {
                    // A full disk may have no room for the first cursor.
                    Ok(()) | Err(QueueError::DiskFull { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                self.unsettled.take_if(|unsettled| unsettled.id == record.id);
                self.model.pop_front_if(|front| front.id == record.id);
            }
            Action::Sync => {
                let before = self.queue().status();
                let durable = self.queue().sync().unwrap();
                assert_eq!(durable.records, before.unsynced_records);
                assert_eq!(durable.samples, before.unsynced_samples);
            }
            Action::Expire(seconds) => {
                self.now += seconds;
                let now = at(self.now);
                let dropped = self.queue().expire(now);
                self.drop_from_model(&dropped);
                let limit = self.age_limit();
                assert!(
                    self.model
                        .front()
                        .is_none_or(|front| front.head.newest_ms >= limit)
                );
            }
            Action::Limits(max_bytes) => {
                self.settings.max_bytes = max_bytes;
                let (settings, now) = (self.settings, at(self.now));
                let dropped = self.queue().set_limits(settings, now);
                self.drop_from_model(&dropped);
            }
            // Without a cursor on the disk, acknowledged records would be returned again.
            Action::Restart if self.queue().cursor.written() == self.queue().front => self.restart(),
            Action::Restart => {}
            Action::Capacity(capacity) => self.disk.set_faults(DiskFaults {
                capacity: (capacity > 0).then_some(capacity),
                ..DiskFaults::default()
            }),
        }
    }

    fn check(&mut self) {
        let status = self.queue().status();
        let samples = self.model.iter().map(|record| u64::from(record.head.samples));
        assert_eq!(status.records, self.model.len() as u64);
        assert_eq!(status.samples, samples.sum::<u64>());
        assert!(status.disk_bytes <= self.settings.max_bytes, "{status:?}");
        assert!(status.accepted_records >= self.accepted);
        self.accepted = status.accepted_records;
        let files = self.disk.files();
        let on_disk: u64 = files.values().map(|file| file.len() as u64).sum();
        assert!(on_disk <= status.disk_bytes, "{on_disk} bytes, {status:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_agree_with_a_list(
        actions in actions(),
        segment_bytes in 100_u64..20_000,
        recent_bytes in prop_oneof![Just(0), 1_usize..30_000],
    ) {
        let mut compared = Compared::new(QueueSettings {
            recent_bytes,
            max_age: Duration::from_mins(20),
            ..settings(30 * 4096, segment_bytes)
        });
        for action in &actions {
            compared.apply(action);
            compared.check();
        }
        compared.disk.set_faults(DiskFaults::default());
        let rest: Vec<Record> = compared.model.drain(..).collect();
        prop_assert_eq!(super::drain(compared.queue()), rest);
    }
}
