//! Tests of the queue, most of them on the simulated disk.

mod damage;
mod faults;
mod files;
mod limits;
mod model;
mod power_loss;

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    Queue, QueueSettings, Record, RecordHead, RecordId, Recovery,
    fakes::{SimulatedDisk, SimulatedFile},
};

type SimulatedQueue = Queue<SimulatedDisk>;

const FOLDER: &str = "/queue";

/// Seconds after the begin of the test's time.
fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds)
}

/// Time stamp of a sample at that time.
fn stamp(seconds: u64) -> i64 {
    (1_000_000_000 + seconds.cast_signed()) * 1000
}

fn settings(max_bytes: u64, segment_bytes: u64) -> QueueSettings {
    QueueSettings {
        max_bytes,
        max_age: Duration::from_hours(1),
        segment_bytes,
        recent_bytes: 0,
    }
}

/// Generous limits, with segments of about this size.
fn roomy(segment_bytes: u64) -> QueueSettings {
    settings(64 << 20, segment_bytes)
}

fn open(disk: &SimulatedDisk, settings: QueueSettings) -> (SimulatedQueue, Recovery) {
    Queue::open_in(disk.clone(), Path::new(FOLDER), settings, at(0)).unwrap()
}

/// A record that is different for each number, with a body of this length.
fn record(number: u64, length: usize) -> Record {
    let byte = |number: u64| number.to_le_bytes()[0];
    let body = (0..length as u64).map(|at| byte(number * 31 + at * 7));
    Record {
        id: RecordId(number),
        head: RecordHead {
            samples: u32::try_from(number % 1000 + 1).unwrap(),
            oldest_ms: stamp(number),
            newest_ms: stamp(number) + 500,
            kind: byte(number),
        },
        body: body.collect(),
    }
}

/// Appends the record with the next number; returns it.
fn append(queue: &mut SimulatedQueue, length: usize) -> Record {
    let record = record(queue.next_id().0, length);
    let dropped = queue.append(record.head, &record.body, at(record.id.0)).unwrap();
    assert_eq!(dropped, []);
    record
}

/// Reads and acknowledges everything.
fn drain<S: crate::QueueStorage>(queue: &mut Queue<S>) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some(record) = queue.front().unwrap() {
        queue.acknowledge(record.id).unwrap();
        records.push(record);
    }
    records
}

/// Numbers of the records, for messages.
fn ids(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.id.0).collect()
}

/// Path of a segment file.
fn segment(first: u64) -> std::path::PathBuf {
    crate::segment::segment_path(Path::new(FOLDER), first)
}

/// What a queue needs when it is idle.
#[test]
fn an_idle_queue_is_small_and_holds_one_file() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, QueueSettings::new(64 << 20, Duration::from_hours(1)));
    for _ in 0..10 {
        append(&mut queue, 1000);
    }
    assert_eq!(drain(&mut queue).len(), 10);
    queue.expire(at(1000));
    assert_eq!(queue.status().segments, 0);
    assert_eq!(disk.open_files(), 1);
    assert_eq!(queue.recent.bytes(), 0);
    let kept = size_of::<SimulatedQueue>()
        + queue.segments.capacity() * size_of::<crate::segment::Segment>()
        + queue.unreported.capacity() * size_of::<crate::Dropped>()
        + queue.folder.capacity() * 2;
    assert!(kept <= 4096, "{kept} bytes");
    let kept = size_of::<SimulatedFile>();
    assert!(kept < 128, "{kept} bytes");
}
