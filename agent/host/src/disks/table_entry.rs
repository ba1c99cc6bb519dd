//! A partition table entry as blkid(8) and udev print it.

/// Unit of sysfs and libblkid in bytes, independent of the disk's block size.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A partition table entry as blkid(8) and udev print it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TableEntry {
    /// PARTUUID, in lower case.
    pub(super) uuid: Option<String>,
    /// PARTLABEL.
    pub(super) label: Option<String>,
    /// Partition type, in lower case.
    pub(super) kind: String,
    /// Attributes of a GPT entry. 0 for MBR, whose flag means "active".
    pub(super) attributes: u64,
    /// Partition number.
    pub(super) index: Option<u32>,
    /// First byte on the disk.
    pub(super) start: Option<u64>,
    /// Size in bytes.
    pub(super) size: Option<u64>,
}

impl TableEntry {
    /// Parses properties whose names start with `PART_ENTRY_`, without that prefix. `None` if there
    /// are none.
    pub(super) fn parse<'a>(properties: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let mut entry = Self::default();
        let mut gpt = false;
        for (key, value) in properties {
            let bytes = || value.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES);
            match key {
                "SCHEME" => gpt = value == "gpt",
                "UUID" => entry.uuid = Some(value.to_ascii_lowercase()),
                "NAME" => entry.label = Some(unescaped(value)),
                "TYPE" => entry.kind = value.to_ascii_lowercase(),
                "FLAGS" => {
                    let digits = value.trim_start_matches("0x");
                    // Unreadable attributes count as all set.
                    entry.attributes = u64::from_str_radix(digits, 16).unwrap_or(u64::MAX);
                }
                "NUMBER" => entry.index = value.parse().ok(),
                "OFFSET" => entry.start = bytes(),
                "SIZE" => entry.size = bytes(),
                _ => {}
            }
        }
        if !gpt {
            entry.attributes = 0;
        }
        entry.uuid.is_some().then_some(entry)
    }

    /// How the kernel's partition differs from the table's; `None` if they agree.
    pub(super) fn differs(&self, index: u32, start: u64, size: u64) -> Option<String> {
        let kernel = (Some(index), Some(start), Some(size));
        (kernel != (self.index, self.start, self.size)).then(|| {
            let or_none = |value: Option<u64>| value.map_or("nothing".to_owned(), |value| value.to_string());
            format!(
                "the kernel has partition {index} at byte {start} with {size} bytes, but the table on the disk has \
                 partition {} at byte {} with {} bytes",
                or_none(self.index.map(u64::from)),
                or_none(self.start),
                or_none(self.size)
            )
        })
    }
}

/// Resolves `\xHH` (udev, blkid) and `\c` (blkid's export format).
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let hex = after
            .strip_prefix(b"x")
            .and_then(|hex| str::from_utf8(hex.get(..2)?).ok());
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            bytes.push(byte);
            rest = &after[3..];
        } else if let Some((next, after)) = after.split_first() {
            bytes.push(*next);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
