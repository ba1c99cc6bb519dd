//! Decoding of whole messages, for receivers and tests. Bounded: hostile bytes cost at most a fixed
//! multiple of their length.

use prost::Message as _;

use crate::{
    DecodeError,
    error::check_size,
    message::{v1, v2},
    wire::Fields,
};

/// Largest number of series of one message.
pub(crate) const MAX_SERIES: usize = 500_000;

/// Decodes a message of 2.0, uncompressed, and checks its references.
///
/// # Errors
/// If it is larger than [`crate::MAX_MESSAGE_BYTES`], malformed, has no empty first symbol, a
/// reference to a symbol that does not exist, or an odd number of label references.
pub fn decode_v2(message: &[u8]) -> Result<v2::Request, DecodeError> {
    check_size(message)?;
    check_series(message, 5)?;
    let request = v2::Request::decode(message).map_err(|error| malformed(&error))?;
    if request.symbols.first().is_none_or(|first| !first.is_empty()) {
        return Err(DecodeError::FirstSymbol);
    }
    let count = request.symbols.len();
    let check = |reference: u32| match usize::try_from(reference) {
        Ok(index) if index < count => Ok(()),
        _ => Err(DecodeError::Symbol {
            index: u64::from(reference),
            count,
        }),
    };
    for series in &request.timeseries {
        if !series.labels_refs.len().is_multiple_of(2) {
            return Err(DecodeError::OddLabels);
        }
        series.labels_refs.iter().copied().try_for_each(check)?;
        if let Some(metadata) = series.metadata {
            check(metadata.help_ref)?;
            check(metadata.unit_ref)?;
        }
    }
    Ok(request)
}

/// Decodes a message of 1.0, uncompressed.
///
/// # Errors
/// If it is larger than [`crate::MAX_MESSAGE_BYTES`] or malformed.
pub fn decode_v1(message: &[u8]) -> Result<v1::WriteRequest, DecodeError> {
    check_size(message)?;
    check_series(message, 1)?;
    v1::WriteRequest::decode(message).map_err(|error| malformed(&error))
}

/// A series of two bytes becomes a structure of about a hundred.
fn check_series(message: &[u8], field_of_series: u32) -> Result<(), DecodeError> {
    let mut fields = Fields::new(message);
    let mut count = 0;
    while let Some((field, _)) = fields.next()? {
        count += usize::from(field == field_of_series);
        if count > MAX_SERIES {
            return Err(DecodeError::TooManySeries { limit: MAX_SERIES });
        }
    }
    Ok(())
}

fn malformed(error: &prost::DecodeError) -> DecodeError {
    DecodeError::Protobuf(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(symbols: &[&str], refs: &[u32]) -> Vec<u8> {
        let series = v2::TimeSeries {
            labels_refs: refs.to_vec(),
            ..v2::TimeSeries::default()
        };
        v2::Request {
            symbols: symbols.iter().map(|&symbol| symbol.to_owned()).collect(),
            timeseries: vec![series],
        }
        .encode_to_vec()
    }

    #[test]
    fn references_are_checked() {
        let symbols = ["", "__name__", "up"];
        assert_eq!(decode_v2(&request(&symbols, &[1, 2])).unwrap().symbols, symbols);
        assert_eq!(decode_v2(&request(&symbols, &[1])), Err(DecodeError::OddLabels));
        let error = DecodeError::Symbol { index: 3, count: 3 };
        assert_eq!(decode_v2(&request(&symbols, &[1, 3])), Err(error));
        assert_eq!(decode_v2(&request(&["a"], &[])), Err(DecodeError::FirstSymbol));
        assert_eq!(decode_v2(&[]), Err(DecodeError::FirstSymbol));
    }

    #[test]
    fn a_large_message_is_not_decoded() {
        let large = vec![0; crate::MAX_MESSAGE_BYTES + 1];
        assert!(matches!(decode_v2(&large), Err(DecodeError::TooLarge { .. })));
        assert!(matches!(decode_v1(&large), Err(DecodeError::TooLarge { .. })));
        let many: Vec<u8> = (0..=MAX_SERIES).flat_map(|_| [0x0a, 0]).collect();
        let error = DecodeError::TooManySeries { limit: MAX_SERIES };
        assert_eq!(decode_v1(&many), Err(error));
    }
}
