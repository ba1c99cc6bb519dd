//! A disk that is full, read-only, or fails.

use super::{FOLDER, append, drain, ids, open, record, roomy, segment, settings};
use crate::{
    DropReason, Queue, QueueError, Record,
    fakes::{DiskFaults, Fate, SimulatedDisk},
};

fn fault(set: impl FnOnce(&mut DiskFaults)) -> DiskFaults {
    let mut faults = DiskFaults::default();
    set(&mut faults);
    faults
}

#[test]
fn a_full_disk_refuses_the_newest_record_and_loses_none() {
    for segment_bytes in [100, 3000, 1 << 20] {
        // Room that ends everywhere: between records, in a header, in a body.
        for capacity in (600..12_000).step_by(97) {
            let disk = SimulatedDisk::default();
            let (mut queue, _) = open(&disk, roomy(segment_bytes));
            disk.set_faults(fault(|faults| faults.capacity = Some(capacity)));
            let mut accepted: Vec<Record> = Vec::new();
            let mut refused = 0;
            for length in 0..20 {
                let record = record(queue.next_id().0, length * 100);
                match queue.append(record.head, &record.body, super::at(0)) {
                    Ok(dropped) => {
                        assert_eq!(dropped, []);
                        accepted.push(record);
                    }
                    Err(QueueError::DiskFull { .. }) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(refused > 0);
            assert_eq!(queue.status().records, accepted.len() as u64);
            queue.sync().unwrap();
            // After a restart, too; and there is room again once the disk has some.
            drop(queue);
            let (mut queue, recovery) = open(&disk, roomy(segment_bytes));
            assert_eq!(recovery.torn_bytes, 0);
            disk.set_faults(DiskFaults::default());
            accepted.push(append(&mut queue, 5000));
            assert_eq!(drain(&mut queue), accepted);
        }
    }
}

#[test]
fn a_torn_record_that_cannot_be_cut_is_passed_over() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, roomy(1 << 20));
    let mut accepted = vec![append(&mut queue, 500)];
    let full = fault(|faults| {
        faults.capacity = Some(1500);
        faults.truncate = true;
    });
    disk.set_faults(full);
    let torn = record(1, 5000);
    let error = queue.append(torn.head, &torn.body, super::at(0)).unwrap_err();
    assert!(matches!(error, QueueError::DiskFull { .. }), "{error}");
    disk.set_faults(DiskFaults::default());
    accepted.push(append(&mut queue, 300));
    assert_eq!(queue.status().segments, 2);
    drop(queue);
    let (mut queue, recovery) = open(&disk, roomy(1 << 20));
    assert!(recovery.torn_bytes > 0);
    assert_eq!(drain(&mut queue), accepted);
    assert_eq!(queue.expire(super::at(0)), []);
}

#[test]
fn a_read_only_disk_can_be_read() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, roomy(300));
    let records: Vec<Record> = (0..5).map(|_| append(&mut queue, 100)).collect();
    disk.set_faults(fault(|faults| faults.read_only = true));
    let refused = record(5, 10);
    let error = queue
        .append(refused.head, &refused.body, super::at(0))
        .unwrap_err();
    assert!(matches!(error, QueueError::ReadOnly { .. }), "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
    // What is delivered is not returned again by this process.
    let mut found = Vec::new();
    while let Some(record) = queue.front().unwrap() {
        let acknowledged = queue.acknowledge(record.id);
        assert!(matches!(acknowledged, Err(QueueError::ReadOnly { .. })));
        found.push(record);
    }
    assert_eq!(found, records);
    assert_eq!(queue.status().records, 0);
    // Writable again: the position and the removals are made up for.
    disk.set_faults(DiskFaults::default());
    let last = append(&mut queue, 20);
    assert_eq!(drain(&mut queue), std::slice::from_ref(&last));
    drop(queue);
    let (queue, recovery) = open(&disk, roomy(300));
    assert_eq!((recovery.records, recovery.dropped.len()), (0, 0));
    assert!(queue.status().segments <= 1, "{:?}", disk.files().keys());
    drop(queue);

    disk.set_faults(fault(|faults| faults.read_only = true));
    let new = Queue::open_in(
        SimulatedDisk::default(),
        FOLDER.as_ref(),
        roomy(300),
        super::at(0),
    );
    drop(new.unwrap());
    let other = SimulatedDisk::default();
    other.set_faults(fault(|faults| faults.read_only = true));
    let error = Queue::open_in(other, FOLDER.as_ref(), roomy(300), super::at(0)).unwrap_err();
    assert!(matches!(error, QueueError::ReadOnly { .. }), "{error}");
}

#[test]
fn a_failed_read_is_an_error_with_its_place_then_passed_over() {
    for (bad, lost) in [(0..1, 0), (40..41, 1), (100..120, 1), (700..701, 1)] {
        let disk = SimulatedDisk::default();
        let (mut queue, _) = open(&disk, roomy(100_000));
        let records: Vec<Record> = (0..40).map(|_| append(&mut queue, 500)).collect();
        disk.set_faults(fault(|faults| faults.read = Some((segment(0), bad.clone()))));
        let mut found = Vec::new();
        let mut errors = Vec::new();
        loop {
            match queue.front() {
                Ok(Some(record)) => {
                    queue.acknowledge(record.id).unwrap();
                    found.push(record);
                }
                Ok(None) => break,
                Err(error) => errors.push(error.to_string()),
            }
        }
        // A header that cannot be read hides how long the record is, up to the next block.
        let missing = records.len() - found.len();
        assert!(missing >= lost && missing <= 8, "{bad:?}: {missing} missing");
        assert_eq!(errors.len(), 3 * lost, "{errors:?}");
        for error in &errors {
            assert!(
                error.contains("cannot read /queue/0000000000000000.records at byte"),
                "{error}"
            );
        }
        let dropped = queue.expire(super::at(0));
        assert_eq!(
            dropped.iter().map(|dropped| dropped.records).sum::<u64>(),
            missing as u64
        );
        assert!(
            dropped
                .iter()
                .all(|dropped| dropped.reason == DropReason::Corrupt)
        );
    }
}

#[test]
fn a_read_error_that_passes_loses_nothing() {
    for bad in [0..1, 40..41, 700..701, 0..u64::MAX] {
        for bad_file in [0, 5, 15] {
            let disk = SimulatedDisk::default();
            let (mut queue, _) = open(&disk, roomy(3000));
            let mut records: Vec<Record> = (0..20).map(|_| append(&mut queue, 500)).collect();
            drop(queue);
            let bad_file = segment(bad_file);
            assert!(disk.files().contains_key(&bad_file), "{:?}", disk.files().keys());
            disk.set_faults(fault(|faults| faults.read = Some((bad_file, bad.clone()))));
            let (mut queue, recovery) = open(&disk, roomy(3000));
            let unreadable = &recovery.unreadable;
            assert!(
                unreadable.iter().all(|place| place.contains("at byte")),
                "{unreadable:?}"
            );
            // Bodies are read when it is their turn.
            assert_eq!(unreadable.len(), usize::from(bad != (700..701)), "{bad:?}");
            disk.set_faults(DiskFaults::default());
            // A record that is appended now gets no number of one that could not be read.
            records.push(append(&mut queue, 50));
            assert_eq!(ids(&drain(&mut queue)), ids(&records), "{bad:?}");
            assert_eq!(queue.status().records, 0);
        }
    }
}

#[test]
fn records_of_a_failed_sync_are_never_durable() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, roomy(1 << 20));
    let mut records = vec![append(&mut queue, 100)];
    assert_eq!(queue.sync().unwrap().records, 1);
    records.push(append(&mut queue, 100));
    disk.set_faults(fault(|faults| faults.sync = true));
    let error = queue.sync().unwrap_err();
    assert!(error.to_string().contains("cannot sync /queue/"), "{error}");
    disk.set_faults(DiskFaults::default());
    // The kernel would report success now, although it forgot the record.
    assert_eq!(queue.sync().unwrap().records, 0);
    records.push(append(&mut queue, 100));
    assert_eq!(queue.sync().unwrap().records, 1);
    let status = queue.status();
    assert_eq!((status.unsynced_records, status.accepted_records), (1, 2));
    let (mut lost, _) = open(&disk.power_loss(|| Fate::Lost), roomy(1 << 20));
    assert_eq!(drain(&mut lost), [records[0].clone(), records[2].clone()]);
    // It is delivered, as long as the process lives.
    assert_eq!(drain(&mut queue), records);
    assert_eq!(queue.status().accepted_records, 3);
}

#[test]
fn an_entry_that_is_not_synced_is_not_durable() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, roomy(1 << 20));
    append(&mut queue, 100);
    disk.set_faults(fault(|faults| faults.sync_folder = true));
    queue.sync().unwrap_err();
    disk.set_faults(DiskFaults::default());
    assert_eq!(queue.sync().unwrap().records, 0);
    let second = append(&mut queue, 100);
    assert_eq!(queue.sync().unwrap().records, 1);
    let (mut lost, _) = open(&disk.power_loss(|| Fate::Lost), roomy(1 << 20));
    assert!(drain(&mut lost).contains(&second));
}

#[test]
fn files_that_cannot_be_removed_are_neither_dropped_nor_forgotten() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, settings(8 * 4096, 100));
    let records: Vec<Record> = (0..7).map(|_| append(&mut queue, 100)).collect();
    disk.set_faults(fault(|faults| faults.remove = true));
    let new = record(7, 100);
    let error = queue.append(new.head, &new.body, super::at(0)).unwrap_err();
    assert!(error.to_string().contains("cannot remove /queue/"), "{error}");
    assert_eq!(drain(&mut queue), records);
    assert_eq!(queue.status().disk_bytes, 8 * 4096);
    // Nothing is left in the files, but they take the space.
    let error = queue.append(new.head, &new.body, super::at(0)).unwrap_err();
    assert!(error.to_string().contains("cannot remove /queue/"), "{error}");
    assert_eq!(queue.status().disk_bytes, 8 * 4096);
    disk.set_faults(DiskFaults::default());
    let new = append(&mut queue, 100);
    assert_eq!(queue.status().disk_bytes, 2 * 4096);
    assert_eq!(drain(&mut queue), [new]);
}
