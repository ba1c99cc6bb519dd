//! GUID partition tables, UEFI specification 2.10, section 5.3.

use super::{
    checksum::crc32,
    source::{Source, number, read},
};

/// Bytes of the header that its checksum covers in revision 1.0.
const HEADER_BYTES: u64 = 92;
/// Bytes of an entry in revision 1.0; larger ones are powers of two.
const ENTRY_BYTES: u64 = 128;
/// Maximum size of an entry array in bytes.
const MAX_ARRAY_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Number, from 1.
    pub(super) number: usize,
    pub(super) type_guid: [u8; 16],
    pub(super) guid: [u8; 16],
    /// First byte.
    pub(super) start: u64,
    /// Bytes.
    pub(super) length: u64,
    /// UTF-16LE, 36 units.
    pub(super) name: Vec<u8>,
}

impl Entry {
    pub(super) fn end(&self) -> u64 {
        self.start + self.length
    }
}

/// One copy of a table, with valid checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gpt {
    pub(super) disk_guid: [u8; 16],
    /// Byte offset of this header.
    pub(super) header: u64,
    /// Byte offset of the other copy's header.
    pub(super) other: u64,
    /// Byte offset of the entry array.
    pub(super) array: u64,
    /// Bytes of the entry array, rounded up to whole sectors.
    pub(super) array_length: u64,
    pub(super) array_crc: u64,
    /// Used entries, by number.
    pub(super) entries: Vec<Entry>,
}

/// Reads the copy whose header is at that byte. The inner error says why there is no valid table.
pub(super) fn parse(
    source: &mut dyn Source,
    sector: u64,
    header: u64,
) -> Result<Result<Gpt, String>, String> {
    if header.checked_add(sector).is_none_or(|end| end > source.size()) {
        return Ok(Err("the header is beyond the end of the disk".to_owned()));
    }
    let bytes = read(source, header, sector)?;
    let fields = match fields(&bytes, sector, header, source.size()) {
        Ok(fields) => fields,
        Err(reason) => return Ok(Err(reason)),
    };
    let array = read(source, fields.array, fields.array_length)?;
    Ok(entries(fields, &array, sector))
}

struct Fields {
    gpt: Gpt,
    count: u64,
    entry_bytes: u64,
    first_usable: u64,
    last_usable: u64,
    array: u64,
    array_length: u64,
}

fn fields(bytes: &[u8], sector: u64, header: u64, size: u64) -> Result<Fields, String> {
    if !bytes.starts_with(b"EFI PART") {
        return Err("the signature \"EFI PART\" is missing".to_owned());
    }
    if number::<4>(bytes, 8) != 0x0001_0000 || number::<4>(bytes, 12) != HEADER_BYTES {
        return Err("its revision is not 1.0".to_owned());
    }
    if crc32(&[&bytes[..16], &[0; 4], &bytes[20..92]]) != u32::try_from(number::<4>(bytes, 16)).unwrap_or(0) {
        return Err("the checksum of its header is wrong".to_owned());
    }
    if bytes[92..].iter().any(|byte| *byte != 0) {
        return Err("there are bytes after its header".to_owned());
    }
    let at = |field| number::<8>(bytes, field).checked_mul(sector);
    let (count, entry_bytes) = (number::<4>(bytes, 80), number::<4>(bytes, 84));
    let array_bytes = count.saturating_mul(entry_bytes);
    if entry_bytes < ENTRY_BYTES || !entry_bytes.is_power_of_two() || array_bytes > MAX_ARRAY_BYTES {
        return Err(format!(
            "its entry array is invalid or too large: {count} entries of {entry_bytes} bytes"
        ));
    }
    let array_length = array_bytes.next_multiple_of(sector);
    let (Some(own), Some(other), Some(array), Some(first_usable), Some(last_usable)) =
        (at(24), at(32), at(72), at(40), at(48))
    else {
        return Err("a block number is too large".to_owned());
    };
    if own != header {
        return Err(format!("its header contains another position, byte {own}"));
    }
    if array.checked_add(array_length).is_none_or(|end| end > size) || array_length == 0 {
        return Err("its entries are beyond the end of the disk".to_owned());
    }
    let mut disk_guid = [0; 16];
    disk_guid.copy_from_slice(&bytes[56..72]);
    Ok(Fields {
        gpt: Gpt {
            disk_guid,
            header,
            other,
            array,
            array_length,
            array_crc: number::<4>(bytes, 88),
            entries: Vec::new(),
        },
        count,
        entry_bytes,
        first_usable,
        last_usable,
        array,
        array_length,
    })
}

fn entries(fields: Fields, array: &[u8], sector: u64) -> Result<Gpt, String> {
    let used = usize::try_from(fields.count * fields.entry_bytes).unwrap_or(usize::MAX);
    let (array, rest) = array
        .split_at_checked(used)
        .ok_or("its entries were not read completely")?;
    if u64::from(crc32(&[array])) != fields.gpt.array_crc {
        return Err("the checksum of its entries is wrong".to_owned());
    }
    if rest.iter().any(|byte| *byte != 0) {
        return Err("there are bytes after its entries".to_owned());
    }
    let mut gpt = fields.gpt;
    let size = usize::try_from(fields.entry_bytes).unwrap_or(usize::MAX);
    for (index, entry) in array.chunks_exact(size).enumerate() {
        if entry[..16].iter().all(|byte| *byte == 0) {
            if entry.iter().any(|byte| *byte != 0) {
                return Err(format!("the unused entry {} is not empty", index + 1));
            }
            continue;
        }
        let (first, last) = (number::<8>(entry, 32), number::<8>(entry, 40));
        let (start, end) = (
            first.checked_mul(sector),
            last.checked_add(1).and_then(|n| n.checked_mul(sector)),
        );
        let (Some(start), Some(end)) = (start, end) else {
            return Err(format!("partition {} is too large", index + 1));
        };
        if start >= end || start < fields.first_usable || end > fields.last_usable + sector {
            return Err(format!("partition {} is not in the usable area", index + 1));
        }
        let mut partition = Entry {
            number: index + 1,
            type_guid: [0; 16],
            guid: [0; 16],
            start,
            length: end - start,
            name: entry[56..128].to_vec(),
        };
        partition.type_guid.copy_from_slice(&entry[..16]);
        partition.guid.copy_from_slice(&entry[16..32]);
        gpt.entries.push(partition);
    }
    let mut order: Vec<&Entry> = gpt.entries.iter().collect();
    order.sort_by_key(|entry| entry.start);
    if order.windows(2).any(|pair| pair[0].end() > pair[1].start) {
        return Err("partitions overlap".to_owned());
    }
    Ok(gpt)
}

/// A GUID as it is printed: the first three fields are little-endian (UEFI 2.10, appendix A).
pub(super) fn guid(bytes: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes_le(*bytes).to_string()
}

/// Name of a partition without control characters.
pub(super) fn name(units: &[u8]) -> String {
    let units: Vec<u16> = units
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .take_while(|unit| *unit != 0)
        .collect();
    format!("{:?}", String::from_utf16_lossy(&units))
}
