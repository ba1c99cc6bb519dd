//! Files in the folder of a queue on disk that were never written by one.

use std::time::{Duration, SystemTime};

use virtfleet_queue::{Queue, QueueSettings, RecordHead, fakes::SimulatedDisk};

/// Names of the files, in the order of the input.
const NAMES: [&str; 3] = ["cursor", "0000000000000000.records", "0000000000000003.records"];

/// Splits the input at lengths that precede the parts, two bytes each; the last part is the rest.
fn parts(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    for _ in 1..NAMES.len() {
        let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
            break;
        };
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (part, rest) = rest.split_at(length);
        parts.push(part);
        bytes = rest;
    }
    parts.push(bytes);
    parts
}

/// A queue opens whatever is in its folder. What it returns is in order and no longer than the
/// files, and a record that is appended afterwards comes last.
pub(super) fn files(bytes: &[u8]) {
    let disk = SimulatedDisk::default();
    for (name, part) in NAMES.iter().zip(parts(bytes)) {
        disk.set_file(format!("/queue/{name}"), part.to_vec());
    }
    let settings = QueueSettings::new(1 << 20, Duration::from_hours(1));
    let now = SystemTime::UNIX_EPOCH;
    let Ok((mut queue, recovery)) = Queue::open_in(disk, "/queue".as_ref(), settings, now) else {
        return;
    };
    assert_eq!(recovery.records, queue.status().records);
    let head = RecordHead {
        samples: 1,
        oldest_ms: 0,
        newest_ms: 0,
        kind: 1,
    };
    let appended = queue.next_id();
    queue
        .append(head, b"appended", now)
        .expect("an append to a disk without faults");
    let (mut last, mut length) = (None, 0);
    while let Some(record) = queue.front().expect("a disk without faults") {
        assert!(last < Some(record.id), "{last:?} before {}", record.id);
        last = Some(record.id);
        length += record.body.len();
        queue
            .acknowledge(record.id)
            .expect("the record that was returned");
    }
    assert_eq!(last, Some(appended));
    assert!(length <= bytes.len() + b"appended".len());
    assert_eq!(queue.status().records, 0);
}
