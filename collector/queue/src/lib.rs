//! A queue on disk: records in order, bounded in bytes and age, checksummed, and safe against kills
//! and power loss.
//!
//! One owner per queue, no threads, no clock: the caller passes the time and decides when to sync.
//!
//! ```text
//! FOLDER/cursor                    up to which record everything is acknowledged; locked (flock)
//! FOLDER/0000000000000001.records  a segment: a header, then records; named after the first record
//! FOLDER/000000000000002c.records  the last segment is the one that grows
//! ```
//!
//! What survives what:
//! - [`Queue::append`] hands a record to the kernel in one write: it survives the end of the
//!   process.
//! - [`Queue::sync`] waits until the disk has it: what was appended before survives power loss.
//! - [`Queue::acknowledge`] survives the end of the process, too. After power loss it may be
//!   forgotten: the record is returned again, with the same bytes. Never the other way round: no
//!   record is passed over that was not acknowledged.
//!
//! A record is returned with exactly the bytes that were appended, or not at all. What is lost to
//! limits or damage is counted ([`Dropped`]). See `docs/decisions/0043-queue.md`.

mod bounds;
mod cursor;
mod error;
#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
mod front;
mod queue;
mod recent;
mod record;
mod recovery;
mod scan;
mod segment;
mod settings;
mod status;
mod storage;
mod sync;
#[cfg(test)]
mod tests;

pub use self::{
    error::{FileAction, QueueError},
    queue::Queue,
    record::{MAX_BODY_BYTES, Record, RecordHead, RecordId},
    settings::QueueSettings,
    status::{BacklogStatus, DropReason, Dropped, Durable, Recovery},
    storage::{QueueFile, QueueStorage, SystemStorage},
};
