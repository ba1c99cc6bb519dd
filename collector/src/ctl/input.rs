//! Files that a person names; `-` is standard input.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use super::fail::Fail;

/// The most that is read.
const MAX_BYTES: u64 = 1 << 20;

/// How errors name it.
pub(super) fn shown(path: &Path) -> String {
    if is_standard_input(path) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Its text. Errors: it cannot be read, is not UTF-8, or is larger than 1 MiB.
pub(super) fn read(path: &Path) -> Result<String, Fail> {
    let mut text = String::new();
    let read = if is_standard_input(path) {
        io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
    };
    let shown = shown(path);
    let length = read.map_err(|error| Fail::Input(format!("{shown}: {error}")))?;
    if length as u64 > MAX_BYTES {
        return Err(Fail::Input(format!(
            "{shown}: it is larger than {MAX_BYTES} bytes"
        )));
    }
    Ok(text)
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}
