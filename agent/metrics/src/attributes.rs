//! Numbers in sysfs, for collectors.

use std::str::FromStr;

use super::CollectError;

use virtfleet_agent_host::{Attribute, AttributeBuffer};

/// The number in an attribute. `None` if it cannot be read now: the device is gone, or its driver
/// has no value.
///
/// # Errors
/// The attribute does not contain a number.
pub(super) fn number<N: FromStr>(
    file: &mut Attribute,
    buffer: &mut AttributeBuffer,
) -> Result<Option<N>, CollectError> {
    match file.number(buffer) {
        Ok(None) => Err(CollectError::failed(format!(
            "{} does not contain a number",
            file.path().display()
        ))),
        Ok(number) => Ok(number),
        Err(error) => {
            tracing::trace!(%error, "attribute left out");
            Ok(None)
        }
    }
}
