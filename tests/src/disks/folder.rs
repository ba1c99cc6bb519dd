//! The folder of a stage, and cleanup after killed tests.

use std::{fs, path::Path, process};

use anyhow::{Context as _, Result};

use crate::swap;

/// Prefix of the folder name of a stage; the process id of the test follows.
const PREFIX: &str = "virtfleet-stage-";

/// Creates a folder. Before that, removes the folders of dead processes, and turns off swap on
/// files in them.
///
/// # Errors
/// The folder cannot be created, or swap cannot be turned off.
pub(super) fn new() -> Result<tempfile::TempDir> {
    let all = std::env::temp_dir();
    swap::end_where(|file| {
        file.strip_prefix(&all).is_ok_and(|file| {
            file.iter()
                .next()
                .is_some_and(|name| is_abandoned(&name.to_string_lossy()))
        })
    })?;
    for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
        if is_abandoned(&entry.file_name().to_string_lossy()) {
            // Another test may remove the folder at the same time.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", process::id()))
        .tempdir()
        .context("a folder for the stage")
}

/// Whether a name is that of a stage folder whose process is dead.
fn is_abandoned(name: &str) -> bool {
    let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    owner.is_some_and(|(owner, _)| owner.parse::<u32>().is_ok() && !Path::new("/proc").join(owner).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folder_of_a_process_that_is_gone_is_abandoned() {
        let name = |owner: u32| format!("{PREFIX}{owner}-x");
        assert!(is_abandoned(&name(u32::MAX)));
        assert!(!is_abandoned(&name(process::id())));
        assert!(!is_abandoned("virtfleet-stage-"));
        assert!(!is_abandoned("virtfleet-stage-x-1"));
        assert!(!is_abandoned("other-1-x"));
    }
}
