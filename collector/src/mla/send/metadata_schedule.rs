//! Which metadata a request of 1.0 carries. Pure: the time is passed in.

use std::{
    collections::{HashSet, hash_map::RandomState},
    hash::BuildHasher as _,
    time::Duration,
};

/// Each metric family's metadata is sent once in this time, as Prometheus does.
const METADATA_INTERVAL: Duration = Duration::from_mins(1);

/// Largest number of families that are remembered. Further ones are sent with each request.
const MAX_FAMILIES: usize = 20_000;

/// Requests of 1.0 have metadata apart from the series, so once in a while is enough.
#[derive(Debug, Default)]
pub(super) struct MetadataSchedule {
    sent: HashSet<u64>,
    hasher: RandomState,
    since: Duration,
}

impl MetadataSchedule {
    /// Starts a new interval if the last one is over at `now`.
    pub(super) fn at(&mut self, now: Duration) -> &mut Self {
        if now.saturating_sub(self.since) >= METADATA_INTERVAL {
            self.sent.clear();
            self.since = now;
        }
        self
    }

    /// Whether the metadata of `family` is due; if so, it counts as sent.
    pub(super) fn due(&mut self, family: &str) -> bool {
        if self.sent.len() >= MAX_FAMILIES {
            return !self.sent.contains(&self.hasher.hash_one(family));
        }
        self.sent.insert(self.hasher.hash_one(family))
    }

    /// Lets all metadata be due again: a request with some was not accepted.
    pub(super) fn reset(&mut self) {
        self.sent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_due_once_in_an_interval_and_memory_is_bounded() {
        let mut schedule = MetadataSchedule::default();
        let at = Duration::from_secs;
        assert!(schedule.at(at(5)).due("up"));
        assert!(!schedule.at(at(30)).due("up"));
        assert!(schedule.at(at(60)).due("up"));
        schedule.reset();
        assert!(schedule.due("up"));
        for number in 0..2 * MAX_FAMILIES {
            assert!(schedule.due(&number.to_string()), "{number}");
        }
        assert_eq!(schedule.sent.len(), MAX_FAMILIES);
        assert!(!schedule.due("up") && !schedule.due("7"));
    }
}
