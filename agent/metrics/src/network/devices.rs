//! Names of network devices, and errors of network queries.

use std::{io, path::Path};

use virtfleet_agent_host::{NetworkError, read_directory};

use crate::{CollectError, Flag};

pub(super) const EXCLUDE: Flag = Flag::text("device-exclude", "deviceExclude");

pub(super) const INCLUDE: Flag = Flag::text("device-include", "deviceInclude");

pub(super) const DEVICES: &[Flag] = &[EXCLUDE, INCLUDE];

/// Maximum number of names in a directory; far more devices than a node has pods.
pub(super) const MAX_DEVICES: usize = 8192;

/// Names in a directory except plain files, sorted.
pub(super) fn names_of_devices(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in read_directory(directory)?.take(MAX_DEVICES) {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| !kind.is_file()) {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The devices under `class/net`. An empty directory is no data.
pub(super) fn devices(directory: &Path) -> Result<Vec<String>, CollectError> {
    match names_of_devices(directory) {
        Ok(names) if names.is_empty() => Err(CollectError::no_data("there is no network device")),
        Ok(names) => Ok(names),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            Err(CollectError::no_data(format!(
                "cannot list {}",
                directory.display()
            )))
        }
        Err(error) => Err(CollectError::because(
            format!("cannot list {}", directory.display()),
            error,
        )),
    }
}

pub(super) fn query_error(what: &'static str) -> impl FnOnce(NetworkError) -> CollectError {
    move |error| CollectError::because(format!("cannot query {what} from the kernel"), error)
}
