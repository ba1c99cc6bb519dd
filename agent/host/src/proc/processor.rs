//! The first processor of `/proc/cpuinfo`.

use std::{fs::File, io::Read as _};

use crate::Roots;

/// Bytes to read: several times the lines of the first CPU.
const READ_BYTES: u64 = 16 << 10;

/// The beginning of `/proc/cpuinfo`, with all lines of the first CPU; `None` if it cannot be read.
/// All CPUs of a VM have the same model and features, and the text of all of them is long.
pub fn first_processor(roots: &Roots) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(roots.proc("cpuinfo")).ok()?;
    file.take(READ_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
