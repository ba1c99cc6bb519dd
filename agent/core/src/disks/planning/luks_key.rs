//! Keys of LUKS containers.

use super::{
    super::{keys::Shut, wanted::Encryption},
    case::Case,
};

/// Data for messages about the key of the container.
pub(super) fn key_refusal<'a>(
    case: &'a Case<'_>,
    encryption: &'a Encryption,
    luks_uuid: &'a str,
) -> Shut<'a> {
    Shut {
        name: &case.disk.name,
        device: case.id(),
        luks_uuid,
        encryption,
    }
}
