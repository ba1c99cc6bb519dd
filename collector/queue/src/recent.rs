//! The newest records in memory, for a reader that follows the writer.

use std::collections::VecDeque;

use crate::record::RecordHead;

#[derive(Debug)]
struct RecentRecord {
    number: u64,
    head: RecordHead,
    body: Vec<u8>,
}

/// Records that were appended and not read yet. Empty as soon as the reader falls behind by more
/// than the limit: a queue with a backlog uses no memory for it.
#[derive(Debug, Default)]
pub(crate) struct RecentRecords {
    records: VecDeque<RecentRecord>,
    bytes: usize,
    /// All records that were not read are in here.
    complete: bool,
}

impl RecentRecords {
    /// Keeps a copy of the newest record, if all that were not read fit within `limit` bytes.
    pub(crate) fn push(
        &mut self,
        number: u64,
        head: RecordHead,
        body: &[u8],
        limit: usize,
        reader_waits: bool,
    ) {
        self.complete |= reader_waits;
        if !self.complete || self.bytes + body.len() > limit {
            *self = Self::default();
            return;
        }
        self.bytes += body.len();
        self.records.push_back(RecentRecord {
            number,
            head,
            body: body.to_vec(),
        });
    }

    /// Removes the record with this number and returns its body. Forgets older ones.
    pub(crate) fn take(&mut self, number: u64) -> Option<Vec<u8>> {
        self.forget_before(number);
        let first = self.records.pop_front_if(|record| record.number == number)?;
        self.bytes -= first.body.len();
        self.release();
        Some(first.body)
    }

    /// Head and length of the first record, if it has this number.
    pub(crate) fn peek(&self, number: u64) -> Option<(RecordHead, usize)> {
        let first = self.records.front().filter(|record| record.number == number)?;
        Some((first.head, first.body.len()))
    }

    pub(crate) fn forget_before(&mut self, number: u64) {
        while let Some(old) = self.records.pop_front_if(|record| record.number < number) {
            self.bytes -= old.body.len();
        }
        self.release();
    }

    /// An idle queue keeps no memory.
    fn release(&mut self) {
        if self.records.is_empty() {
            self.records = VecDeque::new();
        }
    }

    /// Bytes of bodies in memory.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
