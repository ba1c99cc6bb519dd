//! Damaged files: every bit flip of a small queue, and files that were never written by a queue.

use std::path::PathBuf;

use super::{FOLDER, append, drain, ids, open, record, roomy, segment};
use crate::{DropReason, Queue, QueueError, QueueSettings, Record, fakes::SimulatedDisk};

/// A disk with a queue of a few records, the first of which is acknowledged.
fn small() -> (SimulatedDisk, Vec<Record>) {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, roomy(300));
    let mut records: Vec<Record> = (0..6).map(|index| append(&mut queue, 40 + index)).collect();
    queue.sync().unwrap();
    let first = queue.front().unwrap().unwrap();
    queue.acknowledge(first.id).unwrap();
    queue.sync().unwrap();
    records.remove(0);
    (disk, records)
}

/// A disk with these files.
fn disk_with(files: impl IntoIterator<Item = (PathBuf, Vec<u8>)>) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    for (path, content) in files {
        disk.set_file(path, content);
    }
    disk
}

/// Opens it, reads everything, and checks that each record is one of `all`, in order. Returns the
/// records, and how many are counted as lost.
fn read_all(disk: &SimulatedDisk, all: &[Record]) -> (Vec<Record>, u64) {
    let opened = Queue::open_in(disk.clone(), FOLDER.as_ref(), roomy(300), super::at(0));
    let (mut queue, recovery) = opened.unwrap();
    let found = drain(&mut queue);
    assert!(
        found.iter().all(|record| all.contains(record)),
        "{:?}",
        ids(&found)
    );
    assert!(found.windows(2).all(|pair| pair[0].id < pair[1].id));
    let later = queue.expire(super::at(0));
    let dropped = recovery.dropped.iter().chain(&later);
    let lost = dropped.map(|dropped| {
        assert_eq!(dropped.reason, DropReason::Corrupt);
        dropped.records
    });
    let lost = lost.sum();
    // The queue goes on.
    let next = append(&mut queue, 10);
    assert_eq!(drain(&mut queue), [next]);
    (found, lost)
}

#[test]
fn a_flipped_bit_costs_one_record_at_most() {
    let (disk, records) = small();
    let files = disk.files();
    let mut all = vec![record(0, 40)];
    all.extend(records.iter().cloned());
    let (mut flips, mut again) = (0, 0);
    for (path, content) in &files {
        for bit in 0..content.len() * 8 {
            let mut broken = files.clone();
            broken.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
            let (found, lost) = read_all(&disk_with(broken), &all);
            let missing = records.iter().filter(|record| !found.contains(record)).count();
            let what = format!("bit {bit} of {}: {:?}", path.display(), ids(&found));
            assert!(missing <= 1, "{what}");
            // A damaged last record looks as if it had been written in part only.
            let of_tail = !found.contains(records.last().unwrap());
            assert!(
                lost == missing as u64 || of_tail,
                "{lost} counted, {missing} missing; {what}"
            );
            again += usize::from(found.contains(&all[0]));
            flips += 1;
        }
    }
    assert!(flips > 6000, "{flips}");
    // Only where the cursor is damaged, and then the other slot or the records tell.
    assert!(again < 8 * 128, "{again}");
}

#[test]
fn a_cut_file_keeps_what_is_before_the_cut() {
    let (disk, records) = small();
    let files = disk.files();
    let last = segment(4);
    assert!(files.contains_key(&last), "{:?}", files.keys());
    for length in 0..files[&last].len() {
        let mut cut = files.clone();
        cut.get_mut(&last).unwrap().truncate(length);
        let disk = disk_with(cut);
        let (queue, recovery) = open(&disk, roomy(300));
        let whole = usize::try_from(recovery.records).unwrap();
        assert!(whole >= 3);
        drop(queue);
        let (found, missing) = read_all(&disk, &records);
        assert_eq!(found, records[..whole], "cut at {length}");
        assert_eq!(missing, 0);
        // What was cut off is counted once.
        let (_, recovery) = open(&disk, roomy(300));
        assert_eq!(recovery.torn_bytes, 0);
    }
}

#[test]
fn a_missing_file_is_counted() {
    let (disk, records) = small();
    let mut files = disk.files();
    files.remove(&segment(2)).unwrap();
    let (found, lost) = read_all(&disk_with(files), &records);
    assert_eq!(found.len(), records.len() - 2);
    assert_eq!(lost, 2);
}

/// A body may hold bytes that a guest chose.
#[test]
fn a_record_inside_of_a_body_is_never_returned() {
    let disk = SimulatedDisk::default();
    let (mut queue, _) = open(&disk, roomy(1 << 20));
    let forged = crate::record::RecordHeader {
        // The simulated disk's first random number is 1, the next one is not.
        salt: 77,
        number: 1,
        acknowledged: 0,
        head: record(1, 0).head,
        body_length: 4,
        body_checksum: crc32fast::hash(b"evil"),
    };
    let body = [&[0; 100][..], &forged.encode(), b"evil", &[0; 100]].concat();
    let head = record(0, 0).head;
    for _ in 0..3 {
        queue.append(head, &body, super::at(0)).unwrap();
    }
    drop(queue);
    for at in [32, 40, 60] {
        let mut files = disk.files();
        files.get_mut(&segment(0)).unwrap()[at] ^= 1;
        let (mut queue, recovery) = open(&disk_with(files), roomy(1 << 20));
        let found = drain(&mut queue);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|record| record.body == body));
        assert_eq!(recovery.dropped[0].records, 1);
    }
}

#[test]
fn records_of_another_queue_are_not_returned() {
    let (disk, records) = small();
    let (other, _) = small();
    let mut files = disk.files();
    let foreign = other.files()[&segment(2)].clone();
    // The same numbers under another salt, behind the records of this queue.
    let mut foreign = foreign[32..].to_vec();
    foreign[8] ^= 1;
    let checksum = crc32fast::hash(&foreign[8..64]);
    foreign[4..8].copy_from_slice(&checksum.to_le_bytes());
    files.get_mut(&segment(4)).unwrap().extend(foreign);
    // An old block of this queue, with an earlier record.
    let last = files.get_mut(&segment(4)).unwrap();
    last.extend_from_within(32..32 + 64 + 44);
    let (found, _) = read_all(&disk_with(files), &records);
    assert_eq!(found, records);
}

#[test]
fn another_version_is_refused_and_left_alone() {
    let (disk, _) = small();
    for name in ["cursor", "0000000000000002.records"] {
        let mut files = disk.files();
        let path = PathBuf::from(FOLDER).join(name);
        let content = files.get_mut(&path).unwrap();
        content[8] = 2;
        let checksum = crc32fast::hash(&content[..12]);
        content[12..16].copy_from_slice(&checksum.to_le_bytes());
        let disk = disk_with(files.clone());
        let settings: QueueSettings = roomy(300);
        let error = Queue::open_in(disk.clone(), FOLDER.as_ref(), settings, super::at(0)).unwrap_err();
        assert!(matches!(error, QueueError::Version { found: 2, .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("version 2"), "{text}");
        assert_eq!(disk.files(), files);
    }
}

#[test]
fn files_that_are_not_of_a_queue_are_left_alone() {
    let (disk, records) = small();
    let mut files = disk.files();
    let foreign = [
        "lost+found",
        "x.records",
        "0000000000000002.records.bak",
        "ffffffffffffffff.records",
    ];
    for name in foreign {
        files.insert(PathBuf::from(FOLDER).join(name), b"not ours".to_vec());
    }
    let disk = disk_with(files);
    let (found, _) = read_all(&disk, &records);
    assert_eq!(found, records);
    for name in foreign {
        assert_eq!(disk.files()[&PathBuf::from(FOLDER).join(name)], b"not ours");
    }
}

#[test]
fn random_files_never_panic() {
    let (disk, records) = small();
    let files = disk.files();
    for seed in 0..2000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut broken = files.clone();
        for content in broken.values_mut() {
            for _ in 0..rng.usize(..4) {
                let (from, to) = (rng.usize(..=content.len()), rng.usize(..=content.len()));
                match rng.u8(..4) {
                    0 => content.truncate(from),
                    1 => content[from.min(to)..from.max(to)].fill(rng.u8(..)),
                    2 => {
                        let piece = content[from.min(to)..from.max(to)].to_vec();
                        content.splice(from.min(to)..from.min(to), piece);
                    }
                    _ => drop(content.drain(from.min(to)..from.max(to))),
                }
            }
        }
        let mut all = vec![record(0, 40)];
        all.extend(records.iter().cloned());
        read_all(&disk_with(broken), &all);
    }
}
