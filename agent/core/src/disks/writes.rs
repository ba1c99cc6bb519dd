//! The write counters of a block device: whether anything was written to it between two moments.

use serde::{Deserialize, Serialize};

/// Sectors of 512 bytes that a device has written and discarded, from `/sys/block/<disk>/stat`.
///
/// Source: the kernel's `Documentation/block/stat.rst`. The counters of a partition are added to those of its disk. The number of
/// write requests is left out: a cache flush, as fsync(2) sends it, is counted there as a write without sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteCounters {
    /// Sectors that completed writes have written.
    pub written: u64,
    /// Sectors that completed discards have discarded; 0 below Linux 4.18, which counts them as written.
    pub discarded: u64,
}

impl WriteCounters {
    /// Parses a `stat` file. None when it has fewer than the eleven fields of every kernel, or one that is no number.
    pub fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<u64> = stat
            .split_ascii_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        if fields.len() < 11 {
            return None;
        }
        let field = |index: usize| fields.get(index).copied().unwrap_or_default();
        Some(Self {
            written: field(6),
            discarded: field(13),
        })
    }
}

/// The write counters of one device at one moment, with what says that they can be compared with those of another moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WriteMark {
    /// The boot.
    pub boot_id: String,
    /// The device's sequence number. None below Linux 5.15.
    pub diskseq: Option<u64>,
    /// The counters. None when the kernel does not count (`queue/iostats` is 0) or did not answer.
    pub counters: Option<WriteCounters>,
}

/// Whether a device was written to between two [`WriteMark`]s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WritesSince {
    /// No write and no discard was completed through this kernel.
    None,
    /// Something was written, or the device is another one, in words.
    Some(String),
    /// The counters cannot say, in words. The device has to be read again.
    Unknown(String),
}

impl WriteMark {
    /// Whether the counters can prove that nothing was written: the kernel counts, and the device has a sequence number, so that
    /// a device that was detached and attached again is not taken for the same one.
    pub fn is_trusted(&self) -> bool {
        !self.boot_id.is_empty() && self.diskseq.is_some() && self.counters.is_some()
    }

    /// Compares with the mark of an earlier moment.
    pub fn since(&self, earlier: &Self) -> WritesSince {
        if !self.is_trusted() || !earlier.is_trusted() {
            return WritesSince::Unknown(
                "the kernel counts no writes of it (queue/iostats is 0), or gives it no sequence number"
                    .to_owned(),
            );
        }
        if self.boot_id != earlier.boot_id {
            return WritesSince::Unknown("the guest was booted since".to_owned());
        }
        if self.diskseq != earlier.diskseq {
            return WritesSince::Some("it was detached and attached again".to_owned());
        }
        let (Some(now), Some(then)) = (self.counters, earlier.counters) else {
            return WritesSince::Unknown("the kernel counts no writes of it".to_owned());
        };
        if now == then {
            return WritesSince::None;
        }
        WritesSince::Some(format!(
            "{} sectors were written and {} discarded",
            now.written.wrapping_sub(then.written),
            now.discarded.wrapping_sub(then.discarded),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "     446      0    25570     133       7      2     5376      17        0      120      151       3        0    20480       1        4        0";

    fn mark() -> WriteMark {
        WriteMark {
            boot_id: "b".into(),
            diskseq: Some(3),
            counters: WriteCounters::parse(STAT),
        }
    }

    #[test]
    fn the_fields_are_those_of_the_kernels_documentation() {
        let counters = WriteCounters {
            written: 5376,
            discarded: 20480,
        };
        assert_eq!(WriteCounters::parse(STAT), Some(counters));
        // Before Linux 4.18 there are eleven.
        let old = WriteCounters::parse("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((old.written, old.discarded), (7, 0));
        for wrong in ["", "1 2 3", "1 2 3 4 5 6 7 8 9 10 x"] {
            assert_eq!(WriteCounters::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_equal_counters_of_the_same_device_and_boot_say_that_nothing_was_written() {
        assert_eq!(mark().since(&mark()), WritesSince::None);
        let change = |change: fn(&mut WriteCounters)| {
            let mut mark = mark();
            change(mark.counters.as_mut().unwrap());
            mark
        };
        for written in [
            change(|counters| counters.written += 1),
            change(|counters| counters.discarded += 1),
            WriteMark {
                diskseq: Some(4),
                ..mark()
            },
        ] {
            assert!(
                matches!(written.since(&mark()), WritesSince::Some(_)),
                "{written:?}"
            );
        }
        for unknown in [
            WriteMark {
                counters: None,
                ..mark()
            },
            WriteMark {
                diskseq: None,
                ..mark()
            },
            WriteMark {
                boot_id: "c".into(),
                ..mark()
            },
            WriteMark::default(),
        ] {
            assert!(
                matches!(unknown.since(&mark()), WritesSince::Unknown(_)),
                "{unknown:?}"
            );
            assert!(
                matches!(mark().since(&unknown), WritesSince::Unknown(_)),
                "{unknown:?}"
            );
        }
        assert!(matches!(
            WriteMark::default().since(&WriteMark::default()),
            WritesSince::Unknown(_)
        ));
    }
}
