//! Write counters of block devices, which show whether a device was written between two moments.

use serde::{Deserialize, Serialize};

/// Sectors of 512 bytes that a device has written and discarded, from `/sys/block/<disk>/stat`.
///
/// Source: the kernel's `Documentation/block/stat.rst`. The counters of a disk include its
/// partitions. The number of write requests is ignored, because it includes cache flushes
/// (fsync(2)) without sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteCounters {
    /// Sectors written by completed writes.
    pub written: u64,
    /// Sectors discarded by completed discards; 0 below Linux 4.18, which counts them as written.
    pub discarded: u64,
}

impl WriteCounters {
    /// Parses a `stat` file. `None` if it has fewer than the eleven fields of every kernel, or a
    /// field is not a number.
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

/// Write counters of a device at one moment, with the data to compare them with another moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WriteMark {
    pub boot_id: String,
    /// Sequence number of the device. `None` below Linux 5.15.
    pub diskseq: Option<u64>,
    /// Counters. `None` if the kernel does not count (`queue/iostats` is 0) or the read failed.
    pub counters: Option<WriteCounters>,
}

/// Whether a device was written between two [`WriteMark`]s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WritesSince {
    /// No write and no discard completed through this kernel.
    None,
    /// Something was written, or it is another device; the text says which.
    Some(String),
    /// The counters cannot be compared; the text says why. The device must be read again.
    Unknown(String),
}

impl WriteMark {
    /// Whether the counters can prove that nothing was written: the kernel counts writes, and a
    /// sequence number shows whether the device was detached and attached again.
    pub fn is_trusted(&self) -> bool {
        !self.boot_id.is_empty() && self.diskseq.is_some() && self.counters.is_some()
    }

    /// Compares with an earlier mark.
    pub fn since(&self, earlier: &Self) -> WritesSince {
        if !self.is_trusted() || !earlier.is_trusted() {
            return WritesSince::Unknown(
                "the kernel does not count its writes (queue/iostats is 0), or it has no sequence number"
                    .to_owned(),
            );
        }
        if self.boot_id != earlier.boot_id {
            return WritesSince::Unknown("the guest was rebooted since".to_owned());
        }
        if self.diskseq != earlier.diskseq {
            return WritesSince::Some("it was detached and attached again".to_owned());
        }
        let (Some(now), Some(then)) = (self.counters, earlier.counters) else {
            return WritesSince::Unknown("the kernel does not count its writes".to_owned());
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
    fn fields_match_the_kernel_documentation() {
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
    fn only_equal_counters_of_same_device_and_boot_prove_no_write() {
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
