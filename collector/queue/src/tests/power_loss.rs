//! Power loss at each moment, with each combination of what is on the disk.

use std::collections::BTreeMap;

use super::{FOLDER, SimulatedQueue, at, record, settings};
use crate::{
    Queue, QueueSettings, Record,
    fakes::{Fate, SimulatedDisk},
};

/// The queue, and what power loss may and may not do to it.
struct Powered {
    disk: SimulatedDisk,
    queue: SimulatedQueue,
    settings: QueueSettings,
    /// All records that were ever appended and may be on the disk, by number.
    appended: BTreeMap<u64, Record>,
    /// Records that were synced, and neither acknowledged nor dropped.
    owed: BTreeMap<u64, Record>,
    /// Records before this number are acknowledged or dropped.
    acknowledged: u64,
    /// No record before this number may be returned again.
    durable_cursor: u64,
    /// Number after the last record that was synced.
    synced_end: u64,
    returned: Option<u64>,
}

impl Powered {
    fn new(settings: QueueSettings) -> Self {
        let disk = SimulatedDisk::default();
        let (queue, _) = super::open(&disk, settings);
        Self {
            disk,
            queue,
            settings,
            appended: BTreeMap::new(),
            owed: BTreeMap::new(),
            acknowledged: 0,
            durable_cursor: 0,
            synced_end: 0,
            returned: None,
        }
    }

    fn step(&mut self, choice: u8, length: usize) {
        match choice {
            0..=3 => {
                let record = record(self.queue.next_id().0, length);
                let dropped = self
                    .queue
                    .append(record.head, &record.body, at(record.id.0))
                    .unwrap();
                if !dropped.is_empty() {
                    self.acknowledged = self.queue.front;
                    self.owed.retain(|number, _| *number >= self.acknowledged);
                }
                self.appended.insert(record.id.0, record);
            }
            4..=5 => {
                self.returned = self.queue.front().unwrap().map(|record| record.id.0);
                self.pass_over();
            }
            6..=7 => {
                if let Some(number) = self.returned.take() {
                    self.queue.acknowledge(crate::RecordId(number)).unwrap();
                    self.acknowledged = self.acknowledged.max(number + 1);
                    self.owed.remove(&number);
                }
            }
            _ => {
                self.queue.sync().unwrap();
                self.pass_over();
                for (number, record) in self.appended.range(self.acknowledged..) {
                    self.owed.insert(*number, record.clone());
                    self.synced_end = number + 1;
                }
                // What was on the disk and is acknowledged does not return.
                let durable = self.acknowledged.min(self.synced_end);
                self.durable_cursor = self.durable_cursor.max(durable);
            }
        }
    }

    /// The queue may have passed over records that an earlier power loss damaged.
    fn pass_over(&mut self) {
        self.acknowledged = self.acknowledged.max(self.queue.front);
        assert!(self.owed.range(..self.acknowledged).next().is_none());
    }

    /// The process ends, and another one opens the queue.
    fn kill(&mut self) {
        // It counts what is missing only when it comes to it.
        drop(self.queue.front());
        self.pass_over();
        let before = self.queue.status();
        let (other, _) = super::open(&SimulatedDisk::default(), self.settings);
        drop(std::mem::replace(&mut self.queue, other));
        self.queue = super::open(&self.disk, self.settings).0;
        drop(self.queue.front());
        let after = self.queue.status();
        assert_eq!(
            (after.records, after.samples, after.oldest_ms),
            (before.records, before.samples, before.oldest_ms)
        );
        self.pass_over();
        self.returned = None;
    }

    /// Opens what is left after a power loss, and checks it. Returns the queue with what it holds.
    fn check(&self, disk: SimulatedDisk) -> Self {
        let opened = Queue::open_in(disk.clone(), FOLDER.as_ref(), self.settings, at(0));
        let (queue, _) = opened.unwrap();
        assert!(
            queue.cursor.written() <= self.acknowledged,
            "a cursor that is too new"
        );
        assert!(
            queue.front >= self.durable_cursor,
            "a cursor that was synced is lost"
        );
        // Read from a copy, so that the queue itself can go on.
        let copy = disk.power_loss(|| Fate::Written);
        let opened = Queue::open_in(copy, FOLDER.as_ref(), self.settings, at(0));
        let mut found = BTreeMap::new();
        let mut last = None;
        for record in super::drain(&mut opened.unwrap().0) {
            let number = record.id.0;
            assert!(last < Some(number), "{last:?} before {number}");
            last = Some(number);
            assert!(
                Some(&record) == self.appended.get(&number),
                "{number} was never appended"
            );
            found.insert(number, record);
        }
        for (number, record) in &self.owed {
            assert!(
                found.get(number) == Some(record),
                "{number} was synced and is lost"
            );
        }
        assert!(
            queue.next_id().0 >= queue.cursor.written(),
            "a number that passes for acknowledged"
        );
        let (acknowledged, durable_cursor) = (queue.front, queue.cursor.written());
        // Records that are acknowledged may return, as long as the cursor file does not say so.
        let mut appended = found;
        let old = self.appended.range(..acknowledged);
        appended.extend(old.map(|(number, record)| (*number, record.clone())));
        Self {
            disk,
            queue,
            settings: self.settings,
            owed: self.owed.clone(),
            synced_end: appended.keys().last().map_or(0, |last| last + 1),
            appended,
            acknowledged,
            // What a power loss left is on the disk.
            durable_cursor,
            returned: None,
        }
    }
}

fn fate(rng: &mut fastrand::Rng) -> Fate {
    [Fate::Lost, Fate::Written, Fate::Written, Fate::Torn][rng.usize(..4)]
}

/// One history after the other, each with several power losses from which the queue goes on.
#[test]
fn synced_records_survive_random_power_losses() {
    let mut losses = 0;
    for seed in 0..600 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut powered = Powered::new(settings(40 * 4096, rng.u64(200..6000)));
        powered.settings.recent_bytes = rng.usize(..3) * 2000;
        for _ in 0..rng.usize(10..60) {
            powered.step(rng.u8(..10), rng.usize(..1500));
            if rng.u8(..12) == 0 {
                powered.kill();
            }
            if rng.u8(..12) == 0 {
                let disk = powered.disk.power_loss(|| fate(&mut rng));
                powered = powered.check(disk);
                losses += 1;
            }
        }
        // Records that were returned before the power loss cannot be acknowledged after it.
        let disk = powered.disk.power_loss(|| fate(&mut rng));
        powered.check(disk);
    }
    assert!(losses > 1000, "{losses}");
}

/// Every combination, at each moment of a short history with all kinds of steps.
#[test]
fn synced_records_survive_every_combination_of_lost_writes() {
    let histories: [&[u8]; 6] = [
        &[0, 0, 9, 4, 6, 0, 9, 4, 6],
        &[0, 9, 4, 6, 4, 6, 0, 0, 4, 6],
        &[0, 0, 0, 9, 4, 6, 4, 6, 9, 0],
        &[0, 4, 6, 0, 4, 6, 9, 0, 9],
        &[0, 9, 0, 9, 4, 6, 9, 0, 4, 6, 9],
        &[0, 0, 4, 6, 9, 4, 6, 0, 9, 4],
    ];
    let (mut states, mut incomplete) = (0_u64, 0_u64);
    for (index, history) in histories.iter().enumerate() {
        // Small records of one or two sectors; a segment has one record, two, or all.
        for segment_bytes in [100, 700, 100_000] {
            let mut powered = Powered::new(super::roomy(segment_bytes));
            for step in *history {
                powered.step(*step, 300 + index * 40);
                let mut changes = 0_u32;
                drop(powered.disk.power_loss(|| {
                    changes += 1;
                    Fate::Written
                }));
                incomplete += u64::from(changes > 12);
                for combination in 0..1_u64 << changes.min(12) {
                    let mut bit = 0;
                    let disk = powered.disk.power_loss(|| {
                        bit += 1;
                        [Fate::Lost, Fate::Written][(combination >> (bit - 1) & 1) as usize]
                    });
                    powered.check(disk);
                    states += 1;
                }
                // Each change torn, alone, with all others written.
                for torn in 0..changes {
                    let mut bit = 0;
                    let disk = powered.disk.power_loss(|| {
                        bit += 1;
                        if bit == torn + 1 {
                            Fate::Torn
                        } else {
                            Fate::Written
                        }
                    });
                    powered.check(disk);
                }
            }
        }
    }
    println!("{states} states");
    assert!(states > 5000, "{states} states");
    assert_eq!(
        incomplete, 0,
        "moments with too many changes for all combinations"
    );
}

/// What is acknowledged before the next sync costs no sync.
#[test]
fn a_live_queue_needs_no_sync() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = super::open(&disk, super::roomy(1 << 20));
    for _ in 0..20 {
        super::append(&mut queue, 5000);
        assert_eq!(super::drain(&mut queue).len(), 1);
        assert_eq!(queue.sync().unwrap(), crate::Durable::default());
    }
    assert_eq!(queue.status().accepted_records, 20);
    let lost = disk.power_loss(|| Fate::Lost);
    assert!(
        lost.files().values().all(Vec::is_empty),
        "{:?} was synced",
        lost.files().keys()
    );
}
