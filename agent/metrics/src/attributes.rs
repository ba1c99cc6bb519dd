//! Numbers in files of procfs and sysfs, for collectors.

use std::str::FromStr;

use virtfleet_agent_core::procfs::single;
use virtfleet_agent_host::{Attribute, AttributeBuffer, Reread};

use super::{CollectError, Skipped};

/// The number in an attribute. `None` if it cannot be read now: the device is gone, or its driver
/// has no value. An attribute that does not contain a number is left out, too, and counted.
pub(super) fn number<N: FromStr>(
    file: &mut Attribute,
    buffer: &mut AttributeBuffer,
    skipped: &mut Skipped,
) -> Option<N> {
    match file.number(buffer) {
        Ok(None) => {
            let path = file.path().display();
            let error = format!("{path} does not contain a number");
            skipped.take(Err(CollectError::failed(error)))
        }
        Ok(number) => number,
        Err(error) => {
            tracing::trace!(%error, "attribute left out");
            None
        }
    }
}

/// Reads a file with one number.
///
/// # Errors
/// The file cannot be read, or does not contain one number.
pub(super) fn number_in(file: &mut Reread) -> Result<f64, CollectError> {
    file.refresh()?;
    held_number(file)
}

/// The number of a file that was just read.
///
/// # Errors
/// The file does not contain one number.
pub(super) fn held_number(file: &Reread) -> Result<f64, CollectError> {
    let text = String::from_utf8_lossy(file.bytes());
    let number = single::unsigned(&text).map_err(CollectError::parse(file.path()))?;
    Ok(number as f64)
}
