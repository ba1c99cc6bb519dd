//! The body of a request, in the form that the receiver supports.

use bytes::Bytes;
use virtfleet_remote_write::{
    Compression, DecodeError, MAX_MESSAGE_BYTES, Protocol, WireForm, compress, decompress, to_v1_with,
};

/// Makes the body of a request in `form` from `stored`, a compressed message of 2.0. Without a copy
/// if it has that form already. `wants_metadata` is asked for each metric family of a request of
/// 1.0.
pub(super) fn body(
    stored: &Bytes,
    compression: Compression,
    form: WireForm,
    wants_metadata: impl FnMut(&str) -> bool,
) -> Result<Bytes, DecodeError> {
    if form.protocol == Protocol::V2 && form.compression == compression {
        return Ok(stored.clone());
    }
    let message = decompress(compression, stored, MAX_MESSAGE_BYTES)?;
    let message = match form.protocol {
        Protocol::V1 => to_v1_with(&message, wants_metadata)?,
        Protocol::V2 => message,
    };
    Ok(compress(form.compression, &message).into())
}
