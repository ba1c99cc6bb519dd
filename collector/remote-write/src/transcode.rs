//! From a message of 2.0 to one of 1.0, in one pass over the bytes and without an object per label.

use std::collections::HashSet;

use crate::{
    DecodeError, MAX_MESSAGE_BYTES,
    decode::MAX_SERIES,
    error::check_size,
    family::family,
    message::MessageMetricType,
    wire::{FieldValue, Fields, bytes_len, read_varint, varint_len, write_bytes, write_length, write_varint},
};

/// Largest result, in bytes: 1.0 repeats each label in each series.
const MAX_RESULT_BYTES: usize = 4 * MAX_MESSAGE_BYTES;

/// Largest result for each byte of the message. A series of 2.0 has 20 to 60 bytes, and one of 1.0
/// rarely more than 1,000.
const MAX_GROWTH: usize = 256;

/// Field of a label's name, of a label's value, and so on: message `prometheus.WriteRequest`.
mod field_v1 {
    pub(super) const REQUEST_SERIES: u8 = 1;
    pub(super) const REQUEST_METADATA: u8 = 3;
    pub(super) const SERIES_LABEL: u8 = 1;
    pub(super) const SERIES_SAMPLE: u8 = 2;
    pub(super) const LABEL_NAME: u8 = 1;
    pub(super) const LABEL_VALUE: u8 = 2;
    pub(super) const METADATA_FAMILY: u8 = 2;
    pub(super) const METADATA_HELP: u8 = 4;
    pub(super) const METADATA_UNIT: u8 = 5;
}

/// Makes the message of 1.0 with the same samples and the metadata of every family. See
/// [`to_v1_with`].
///
/// # Errors
/// As [`to_v1_with`].
pub fn to_v1(v2_message: &[u8]) -> Result<Vec<u8>, DecodeError> {
    to_v1_with(v2_message, |_| true)
}

/// Makes the message of 1.0 with the same samples, in the same order. `wants_metadata` is called
/// once for each metric family that has metadata. What 1.0 has no field for is left out: start
/// timestamps, exemplars, and native histograms. A series without samples is left out, too, and so
/// is a label with an empty value, which is the same as none.
///
/// # Errors
/// If the message is malformed, as for [`crate::decode_v2`], a label has an empty name, or the
/// result would have more than 64 MiB or more than 256 times as many bytes.
pub fn to_v1_with(
    v2_message: &[u8],
    mut wants_metadata: impl FnMut(&str) -> bool,
) -> Result<Vec<u8>, DecodeError> {
    check_size(v2_message)?;
    let request = Request::read(v2_message)?;
    let limit = v2_message.len().saturating_mul(MAX_GROWTH).min(MAX_RESULT_BYTES);
    let mut out = Vec::with_capacity(v2_message.len().saturating_mul(3));
    let mut families = HashSet::new();
    let mut metadata = Vec::new();
    let mut series = Series::default();
    for message in &request.series {
        series.read(message, &request.symbols)?;
        if series.samples.is_empty() {
            continue;
        }
        series.write(&mut out);
        if let Some(known) = series.metadata(&request.symbols)?
            && families.insert(known.family)
            && wants_metadata(known.family)
        {
            known.write(&mut metadata);
        }
        let bytes = out.len().saturating_add(metadata.len());
        if bytes > limit {
            return Err(DecodeError::TooLarge { bytes, limit });
        }
    }
    out.append(&mut metadata);
    Ok(out)
}

/// The parts of a request of 2.0.
struct Request<'a> {
    symbols: Vec<&'a str>,
    series: Vec<&'a [u8]>,
}

impl<'a> Request<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let (mut symbols, mut series) = (Vec::new(), Vec::new());
        let mut fields = Fields::new(message);
        while let Some((field, value)) = fields.next()? {
            match field {
                4 => symbols.push(value.text(field)?),
                5 if series.len() == MAX_SERIES => {
                    return Err(DecodeError::TooManySeries { limit: MAX_SERIES });
                }
                5 => series.push(value.bytes(field)?),
                _ => {}
            }
        }
        if symbols.first().is_none_or(|first| !first.is_empty()) {
            return Err(DecodeError::FirstSymbol);
        }
        Ok(Self { symbols, series })
    }
}

fn symbol<'a>(symbols: &[&'a str], index: u64) -> Result<&'a str, DecodeError> {
    usize::try_from(index)
        .ok()
        .and_then(|position| symbols.get(position).copied())
        .ok_or(DecodeError::Symbol {
            index,
            count: symbols.len(),
        })
}

/// One series of 2.0; reused for the next one.
#[derive(Default)]
struct Series<'a> {
    references: Vec<u64>,
    labels: Vec<(&'a str, &'a str)>,
    samples: Vec<(u64, u64)>,
    metadata: Option<&'a [u8]>,
}

impl<'a> Series<'a> {
    fn read(&mut self, message: &'a [u8], symbols: &[&'a str]) -> Result<(), DecodeError> {
        self.references.clear();
        self.labels.clear();
        self.samples.clear();
        self.metadata = None;
        let mut fields = Fields::new(message);
        while let Some((field, value)) = fields.next()? {
            match (field, value) {
                // Packed, as encoders write it, or one by one, which is the same in protobuf.
                (1, FieldValue::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        self.references.push(read_varint(&mut packed)?);
                    }
                }
                (1, FieldValue::Varint(reference)) => self.references.push(reference),
                (1, other) => return Err(other.unexpected(field)),
                (2, _) => self.samples.push(read_sample(value.bytes(field)?)?),
                (5, _) => self.metadata = Some(value.bytes(field)?),
                _ => {}
            }
        }
        if !self.references.len().is_multiple_of(2) {
            return Err(DecodeError::OddLabels);
        }
        for pair in self.references.as_chunks::<2>().0 {
            let (name, value) = (symbol(symbols, pair[0])?, symbol(symbols, pair[1])?);
            if name.is_empty() {
                return Err(DecodeError::EmptyLabelName);
            }
            if !value.is_empty() {
                self.labels.push((name, value));
            }
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        let labels = self.labels.iter().map(|label| bytes_len(label_len(label)));
        let samples = self.samples.iter().map(|sample| bytes_len(sample_len(*sample)));
        let length = labels.sum::<usize>() + samples.sum::<usize>();
        write_length(out, field_v1::REQUEST_SERIES, length);
        for label in &self.labels {
            write_length(out, field_v1::SERIES_LABEL, label_len(label));
            write_bytes(out, field_v1::LABEL_NAME, label.0.as_bytes());
            write_bytes(out, field_v1::LABEL_VALUE, label.1.as_bytes());
        }
        for &(bits, timestamp) in &self.samples {
            write_length(out, field_v1::SERIES_SAMPLE, sample_len((bits, timestamp)));
            if bits != 0 {
                out.push(1 << 3 | 1);
                out.extend_from_slice(&bits.to_le_bytes());
            }
            if timestamp != 0 {
                out.push(2 << 3);
                write_varint(out, timestamp);
            }
        }
    }

    fn metadata(&self, symbols: &[&'a str]) -> Result<Option<Metadata<'a>>, DecodeError> {
        let Some(message) = self.metadata else {
            return Ok(None);
        };
        let (mut kind, mut help, mut unit) = (0, "", "");
        let mut fields = Fields::new(message);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => kind = value.varint(field)?,
                3 => help = symbol(symbols, value.varint(field)?)?,
                4 => unit = symbol(symbols, value.varint(field)?)?,
                _ => {}
            }
        }
        // A type that this version does not have is unknown.
        let kind = i32::try_from(kind)
            .ok()
            .and_then(|number| MessageMetricType::try_from(number).ok())
            .unwrap_or(MessageMetricType::Unspecified);
        let name = self.labels.iter().find(|(name, _)| *name == "__name__");
        let Some(&(_, name)) = name else {
            return Ok(None);
        };
        if kind == MessageMetricType::Unspecified && help.is_empty() && unit.is_empty() {
            return Ok(None);
        }
        Ok(Some(Metadata {
            kind,
            family: family(name, kind),
            help,
            unit,
        }))
    }
}

fn label_len(label: &(&str, &str)) -> usize {
    bytes_len(label.0.len()) + bytes_len(label.1.len())
}

fn sample_len((bits, timestamp): (u64, u64)) -> usize {
    let value = if bits == 0 { 0 } else { 9 };
    let time = if timestamp == 0 {
        0
    } else {
        1 + varint_len(timestamp)
    };
    value + time
}

/// The bits of the value, and the timestamp as its varint.
fn read_sample(message: &[u8]) -> Result<(u64, u64), DecodeError> {
    let (mut bits, mut timestamp) = (0, 0);
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => bits = value.fixed64(field)?,
            2 => timestamp = value.varint(field)?,
            _ => {}
        }
    }
    Ok((bits, timestamp))
}

struct Metadata<'a> {
    kind: MessageMetricType,
    family: &'a str,
    help: &'a str,
    unit: &'a str,
}

impl Metadata<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let texts = [
            (field_v1::METADATA_FAMILY, self.family),
            (field_v1::METADATA_HELP, self.help),
            (field_v1::METADATA_UNIT, self.unit),
        ];
        let present = || texts.iter().filter(|(_, text)| !text.is_empty());
        let kind = self.kind as u8;
        let length: usize = present().map(|(_, text)| bytes_len(text.len())).sum();
        let length = length + if kind == 0 { 0 } else { 2 };
        write_length(out, field_v1::REQUEST_METADATA, length);
        if kind != 0 {
            out.extend_from_slice(&[1 << 3, kind]);
        }
        for (field, text) in present() {
            write_bytes(out, *field, text.as_bytes());
        }
    }
}

#[cfg(test)]
#[path = "transcode_tests.rs"]
mod tests;
