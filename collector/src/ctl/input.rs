//! Input files; `-` is standard input.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use super::fail::Fail;

/// Maximum size of an input file.
const MAX_BYTES: u64 = 1 << 20;

/// Its name in messages.
pub(super) fn shown(path: &Path) -> String {
    if is_standard_input(path) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Its folder; for standard input the current folder.
pub(super) fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|_| !is_standard_input(path));
    folder
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Its text.
///
/// # Errors
/// It cannot be read, is not UTF-8 text, or is larger than 1 MiB.
pub(super) fn read(path: &Path) -> Result<String, Fail> {
    let failed = |why: &str| Fail::Input(format!("{}: {why}", shown(path)));
    let bytes = bytes(path).map_err(|error| failed(&error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8 text"))
}

/// Its content.
///
/// # Errors
/// It cannot be read, or is larger than 1 MiB.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if is_standard_input(path) {
        io::stdin().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("larger than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

pub(super) fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}
