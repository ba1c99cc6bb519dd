//! The kernel's filesystem.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use super::{at, drain, record};
use crate::{Queue, QueueError, QueueSettings};

fn settings() -> QueueSettings {
    QueueSettings {
        segment_bytes: 100_000,
        ..QueueSettings::new(16 << 20, Duration::from_hours(1))
    }
}

#[test]
fn records_survive_in_real_files() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("mla/tenant");
    let (mut queue, recovery) = Queue::open(&folder, settings(), at(0)).unwrap();
    assert_eq!(recovery, crate::Recovery::default());
    let records: Vec<_> = (0..100).map(|number| record(number, 3000)).collect();
    for record in &records {
        queue.append(record.head, &record.body, at(0)).unwrap();
    }
    assert_eq!(queue.sync().unwrap().records, 100);
    let first = queue.front().unwrap().unwrap();
    queue.acknowledge(first.id).unwrap();
    let error = Queue::open(&folder, settings(), at(0)).unwrap_err();
    assert!(matches!(error, QueueError::Locked { .. }), "{error}");
    drop(queue);
    for (path, mode) in [(folder.clone(), 0o700), (folder.join("cursor"), 0o600)] {
        let found = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode);
    }

    let (mut queue, recovery) = Queue::open(&folder, settings(), at(0)).unwrap();
    assert_eq!(recovery.records, 99);
    assert_eq!(drain(&mut queue), records[1..]);
    queue.expire(at(100));
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        1,
        "only the cursor is left"
    );
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Queue::open(&file, settings(), at(0)).unwrap_err().to_string();
    assert!(error.contains(&file.display().to_string()), "{error}");
}

#[test]
fn a_file_that_someone_removed_costs_its_records() {
    let parent = tempfile::tempdir().unwrap();
    let (mut queue, _) = Queue::open(parent.path(), settings(), at(0)).unwrap();
    for number in 0..100 {
        let record = record(number, 3000);
        queue.append(record.head, &record.body, at(0)).unwrap();
    }
    fs::remove_file(parent.path().join("0000000000000000.records")).unwrap();
    let found = drain(&mut queue);
    assert!(found.len() < 100 && found.len() > 50);
    let dropped = queue.expire(at(0));
    assert_eq!(dropped[0].records, 100 - found.len() as u64);
}
