//! Limits of bytes and age, and what may be acknowledged.

use super::{FOLDER, append, at, drain, open, record, roomy, settings, stamp};
use crate::{DropReason, Dropped, Queue, QueueError, QueueSettings, RecordId, fakes::SimulatedDisk};

#[test]
fn the_oldest_records_are_dropped_and_counted() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, settings(16 * 4096, 1 << 20));
    let (mut dropped, mut samples) = (0, 0);
    for number in 0..1000 {
        let record = record(number, 900);
        for found in queue.append(record.head, &record.body, at(0)).unwrap() {
            assert_eq!(found.reason, DropReason::Full);
            assert_eq!(found.bytes, found.records * 964);
            dropped += found.records;
            samples += found.samples;
        }
        assert!(queue.status().disk_bytes <= 16 * 4096);
    }
    let rest = drain(&mut queue);
    assert_eq!(rest.len() as u64 + dropped, 1000);
    assert_eq!(rest[0].id, RecordId(dropped));
    assert_eq!(samples, (0..dropped).map(|number| number % 1000 + 1).sum::<u64>());
    // Most of the limit is used: a segment, an eighth of it, is dropped at a time.
    assert!(rest.len() * 964 > 12 * 4096, "{}", rest.len());
}

#[test]
fn smaller_limits_drop_at_once_and_at_start() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, roomy(4000));
    for _ in 0..40 {
        append(&mut queue, 900);
    }
    let sum = |dropped: &[Dropped]| dropped.iter().map(|dropped| dropped.records).sum::<u64>();
    let first = sum(&queue.set_limits(settings(10 * 4096, 4000), at(0)));
    assert!(first > 0);
    drop(queue);
    let (mut queue, recovery) = open(&disk, settings(5 * 4096, 4000));
    assert_eq!(recovery.records, 40 - first);
    let second = sum(&recovery.dropped);
    assert_eq!(drain(&mut queue).len() as u64, 40 - first - second);
    assert!(queue.status().disk_bytes <= 5 * 4096);
}

#[test]
fn records_that_are_too_old_are_dropped_one_by_one() {
    let disk = SimulatedDisk::default();
    let hour = 3600;
    let (mut queue, _) = open(&disk, roomy(1 << 20));
    for number in 0..10 {
        append(&mut queue, number);
    }
    assert_eq!(queue.expire(at(hour)), []);
    // The newest sample of a record is half a second after its first one.
    let dropped = queue.expire(at(hour + 4));
    assert_eq!((dropped[0].records, dropped[0].reason), (4, DropReason::TooOld));
    assert_eq!(queue.status().oldest_ms, Some(stamp(4)));
    let front = queue.front().unwrap().unwrap();
    assert_eq!(front.id, RecordId(4));
    // One that was returned and dropped meanwhile is acknowledged: it was not lost.
    assert_eq!(queue.expire(at(hour + 6))[0].records, 1);
    queue.acknowledge(front.id).unwrap();
    assert_eq!(queue.front().unwrap().unwrap().id, RecordId(6));
    // One that is not acknowledged is counted when the next one is asked for.
    assert_eq!(queue.expire(at(10 * hour))[0].records, 3);
    assert_eq!(queue.front().unwrap(), None);
    assert_eq!(queue.expire(at(10 * hour))[0].records, 1);
    drop(queue);
    let (_, recovery) = open(&disk, roomy(1 << 20));
    assert_eq!(recovery.records, 0);
}

#[test]
fn a_record_dropped_while_it_is_sent_is_counted_only_if_it_is_not_acknowledged() {
    for is_delivered in [true, false] {
        let disk = SimulatedDisk::default();
        let (mut queue, _) = open(&disk, settings(16 * 4096, 1 << 20));
        let mut dropped = 0;
        let append = |queue: &mut super::SimulatedQueue| -> u64 {
            let record = record(queue.next_id().0, 900);
            let dropped = queue.append(record.head, &record.body, at(0)).unwrap();
            dropped.iter().map(|dropped| dropped.records).sum()
        };
        dropped += append(&mut queue);
        let front = queue.front().unwrap().unwrap();
        for _ in 1..200 {
            dropped += append(&mut queue);
        }
        assert!(dropped > 0, "the record that is sent is among the dropped ones");
        if is_delivered {
            queue.acknowledge(front.id).unwrap();
        }
        let rest = drain(&mut queue).len() as u64;
        dropped += append(&mut queue);
        let lost = 200 - rest - u64::from(is_delivered);
        assert_eq!(dropped, lost, "delivered: {is_delivered}");
        assert_eq!(queue.status().dropped_records, lost);
    }
}

#[test]
fn a_record_that_never_fits_is_refused() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, settings(4 * 4096, 1 << 20));
    let kept = append(&mut queue, 100);
    let large = record(1, 2 * 4096 + 1);
    let error = queue.append(large.head, &large.body, at(0)).unwrap_err();
    assert!(
        matches!(
            error,
            QueueError::TooLarge {
                bytes: 8193,
                limit: 8192
            }
        ),
        "{error}"
    );
    assert_eq!(drain(&mut queue), [kept]);
    let fits = record(1, 2 * 4096);
    queue.append(fits.head, &fits.body, at(0)).unwrap();
    assert!(queue.status().disk_bytes <= 4 * 4096);
    assert_eq!(drain(&mut queue), [fits]);
}

#[test]
fn only_the_returned_record_can_be_acknowledged() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, roomy(1 << 20));
    append(&mut queue, 10);
    let second = append(&mut queue, 10);
    for id in [RecordId(0), second.id] {
        assert!(matches!(queue.acknowledge(id), Err(QueueError::NotFront { .. })));
    }
    let first = queue.front().unwrap().unwrap();
    assert!(matches!(
        queue.acknowledge(second.id),
        Err(QueueError::NotFront { .. })
    ));
    queue.acknowledge(first.id).unwrap();
    queue.acknowledge(first.id).unwrap();
    assert_eq!(drain(&mut queue), [second]);
}

#[test]
fn a_live_tail_is_read_from_memory_and_a_backlog_uses_none() {
    let disk = SimulatedDisk::default();
    let settings = QueueSettings {
        recent_bytes: 10_000,
        ..roomy(1 << 20)
    };
    let (mut queue, _) = open(&disk, settings);
    let unreadable = crate::fakes::DiskFaults {
        read: Some((super::segment(0), 0..u64::MAX)),
        ..Default::default()
    };
    disk.set_faults(unreadable);
    for _ in 0..10 {
        let records = [append(&mut queue, 3000), append(&mut queue, 3000)];
        assert_eq!(drain(&mut queue), records);
        assert_eq!(queue.recent.bytes(), 0);
    }
    // Appended while the reader holds the record before it.
    let first = append(&mut queue, 3000);
    assert_eq!(queue.front().unwrap(), Some(first.clone()));
    let second = append(&mut queue, 3000);
    queue.acknowledge(first.id).unwrap();
    assert_eq!(queue.front().unwrap(), Some(second.clone()));
    queue.acknowledge(second.id).unwrap();
    disk.set_faults(crate::fakes::DiskFaults::default());
    let backlog: Vec<_> = (0..10)
        .map(|_| {
            let record = append(&mut queue, 3000);
            assert!(queue.recent.bytes() <= 10_000);
            record
        })
        .collect();
    assert_eq!(queue.recent.bytes(), 0);
    assert_eq!(drain(&mut queue), backlog);
}

#[test]
fn a_folder_has_one_owner() {
    let disk = SimulatedDisk::default();
    let (queue, _) = open(&disk, roomy(100));
    let error = Queue::open_in(disk.clone(), FOLDER.as_ref(), roomy(100), at(0)).unwrap_err();
    assert!(matches!(error, QueueError::Locked { .. }), "{error}");
    drop(queue);
    open(&disk, roomy(100));
}

/// Bytes written for each byte appended, headers and cursor included.
#[test]
fn what_is_written_is_little_more_than_what_is_appended() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, roomy(1 << 20));
    for round in 0..400 {
        append(&mut queue, 2000);
        if round % 4 == 3 {
            queue.sync().unwrap();
        }
        if round % 3 == 2 {
            let front = queue.front().unwrap().unwrap();
            queue.acknowledge(front.id).unwrap();
        }
    }
    let status = queue.status();
    let ratio = status.written_bytes as f64 / status.appended_bytes as f64;
    assert!((1.0..1.1).contains(&ratio), "{ratio}");
}
