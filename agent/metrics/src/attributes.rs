//! Numbers out of sysfs, for collectors.

use std::str::FromStr;

use super::CollectError;

use virtfleet_agent_host::{Attribute, AttributeBuffer};

/// The number that an attribute holds; none when it cannot be read now: its device went away, its driver has no answer.
///
/// Errors: it holds something else.
pub(super) fn number<N: FromStr>(
    file: &mut Attribute,
    buffer: &mut AttributeBuffer,
) -> Result<Option<N>, CollectError> {
    match file.number(buffer) {
        Ok(None) => Err(CollectError::failed(format!(
            "{} holds no number",
            file.path().display()
        ))),
        Ok(number) => Ok(number),
        Err(error) => {
            tracing::trace!(%error, "left out");
            Ok(None)
        }
    }
}
