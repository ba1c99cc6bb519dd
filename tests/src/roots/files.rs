//! Files of a guest's trees.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// Writes a file; creates its folders.
pub(super) fn put(dir: &Path, path: impl AsRef<Path>, text: impl AsRef<str>) -> Result<()> {
    let path = dir.join(path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    }
    fs::write(&path, text.as_ref()).with_context(|| format!("write {}", path.display()))
}

/// Writes the files of one sysfs folder, each with a trailing newline.
pub(super) fn attributes(dir: &Path, folder: &str, files: &[(&str, &str)]) -> Result<()> {
    files
        .iter()
        .try_for_each(|(name, text)| put(dir, format!("{folder}/{name}"), format!("{text}\n")))
}
