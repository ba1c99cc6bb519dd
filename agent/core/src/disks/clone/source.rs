//! Access to the bytes of a disk image.

use super::super::{on_disk::le, probe::Region};

/// Readable bytes of a disk. The host implements it for an open device, tests for memory.
pub trait Source {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Reads exactly `length` bytes.
    ///
    /// # Errors
    ///
    /// A read error, a timeout, or a range beyond the end.
    fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, String>;
}

/// Number of bytes per read when comparing or scanning.
pub(super) const CHUNK: u64 = 1 << 20;

/// Whether all bytes are zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|part| *part == ZEROS[..part.len()])
}

/// Reads exactly `length` bytes. Fails without reading if the range is beyond the end.
pub(super) fn read(source: &mut dyn Source, offset: u64, length: u64) -> Result<Vec<u8>, String> {
    let end = offset.checked_add(length);
    let length = usize::try_from(length).ok();
    match (end, length) {
        (Some(end), Some(length)) if end <= source.size() => {
            let bytes = source.read(offset, length)?;
            if bytes.len() == length {
                Ok(bytes)
            } else {
                Err(format!(
                    "short read at byte {offset}: {} of {length} bytes",
                    bytes.len()
                ))
            }
        }
        _ => Err(format!(
            "bytes from {offset} on are beyond the end of the disk ({} bytes)",
            source.size()
        )),
    }
}

/// Returns the first byte of the region that is neither zero nor equal to the byte of `root`, with
/// both values. Bytes beyond the end of `root` are zero.
pub(super) fn first_foreign(
    clone: &mut dyn Source,
    root: &mut dyn Source,
    region: Region,
) -> Result<Option<(u64, u8, u8)>, String> {
    for (offset, length) in chunks(region) {
        let here = read(clone, offset, length)?;
        if is_zero(&here) {
            continue;
        }
        let there = padded(root, offset, length)?;
        if here == there {
            continue;
        }
        let mut pairs = here.iter().zip(&there);
        if let Some(at) = pairs.position(|(here, there)| *here != 0 && here != there) {
            return Ok(Some((offset + at as u64, here[at], there[at])));
        }
    }
    Ok(None)
}

/// Returns the first byte of the region that differs from `root`, except at the offsets in
/// `ignored`.
pub(super) fn first_difference(
    clone: &mut dyn Source,
    root: &mut dyn Source,
    region: Region,
    ignored: &[u64],
) -> Result<Option<(u64, u8, u8)>, String> {
    for (offset, length) in chunks(region) {
        let here = read(clone, offset, length)?;
        let there = padded(root, offset, length)?;
        if here == there {
            continue;
        }
        let mut pairs = (offset..).zip(here.into_iter().zip(there));
        let differs = |(at, (here, there)): &(u64, (u8, u8))| here != there && !ignored.contains(at);
        if let Some((at, (here, there))) = pairs.find(differs) {
            return Ok(Some((at, here, there)));
        }
    }
    Ok(None)
}

/// Reads `length` bytes; those beyond the end of the source are zero.
fn padded(source: &mut dyn Source, offset: u64, length: u64) -> Result<Vec<u8>, String> {
    let there = source.size().saturating_sub(offset).min(length);
    let mut bytes = if there == 0 {
        Vec::new()
    } else {
        read(source, offset, there)?
    };
    bytes.resize(usize::try_from(length).unwrap_or_default(), 0);
    Ok(bytes)
}

/// Splits the region into pieces of at most [`CHUNK`] bytes.
pub(super) fn chunks(region: Region) -> impl Iterator<Item = (u64, u64)> {
    (0..region.length.div_ceil(CHUNK)).map(move |index| {
        let begin = index * CHUNK;
        (region.offset + begin, (region.length - begin).min(CHUNK))
    })
}

/// A little-endian number at a byte offset; zero beyond the end.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    le(bytes, at, N)
}
