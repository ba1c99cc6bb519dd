//! Bodies for queues that tests can tell apart, whatever became of the process that appended them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use virtfleet_queue::{QueueSettings, Record, RecordHead};

/// Limits that no test reaches, with small segments.
pub fn settings() -> QueueSettings {
    QueueSettings {
        segment_bytes: 64 << 10,
        recent_bytes: 16 << 10,
        ..QueueSettings::new(1 << 30, Duration::from_hours(24 * 365 * 100))
    }
}

/// The head of a body.
pub fn head(number: u64) -> RecordHead {
    let milliseconds = 1_700_000_000_000 + number.cast_signed();
    RecordHead {
        samples: u32::try_from(number % 5000).unwrap_or_default(),
        oldest_ms: milliseconds,
        newest_ms: milliseconds + 10,
        kind: number.to_le_bytes()[0],
    }
}

/// The body with this number: its number, and up to 8 KB that follow from it.
pub fn body(number: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut bytes = vec![0; 8 + rng.usize(..8000)];
    rng.fill(&mut bytes[8..]);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The number of a record that has one of these heads and bodies.
///
/// # Errors
/// Head or body are others.
pub fn number_of(record: &Record) -> Result<u64> {
    let number = record.body.first_chunk().context("a body without number")?;
    let number = u64::from_le_bytes(*number);
    ensure!(record.body == body(number), "the body of {number} is another");
    ensure!(record.head == head(number), "the head of {number} is another");
    Ok(number)
}
