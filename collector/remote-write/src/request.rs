//! Encoder of write requests of remote write 2.0.
//!
//! Source of the rules: "Prometheus Remote-Write 2.0 specification", protobuf message
//! `io.prometheus.write.v2.Request`. Strings are written once per request, as symbols; the builder
//! keeps its memory from request to request and allocates nothing for a series. Series are
//! compressed while they are written.
//!
//! The time at which a counter started is written as `Sample.start_timestamp`, which the
//! specification defines, and as `TimeSeries.created_timestamp`, where its release candidates and
//! Prometheus 3.5 have it. Receivers ignore the field they do not know.

use std::hash::{BuildHasher as _, RandomState};

use crate::blocks::PieceWriter;

/// Bits of the NaN that ends a series (Prometheus' staleness marker).
pub const STALE_NAN: u64 = 0x7ff0_0000_0000_0002;
/// Bits of the NaN that Prometheus stores for every other NaN.
pub const NORMAL_NAN: u64 = 0x7ff8_0000_0000_0001;

/// Field numbers with their wire types: `number << 3 | type`.
mod tag {
    pub(super) const REQUEST_SYMBOLS: u8 = 4 << 3 | 2;
    pub(super) const REQUEST_TIMESERIES: u8 = 5 << 3 | 2;
    pub(super) const SERIES_LABELS_REFS: u8 = 1 << 3 | 2;
    pub(super) const SERIES_SAMPLES: u8 = 2 << 3 | 2;
    pub(super) const SERIES_METADATA: u8 = 5 << 3 | 2;
    pub(super) const SERIES_CREATED: u8 = 6 << 3;
    pub(super) const SAMPLE_VALUE: u8 = 1 << 3 | 1;
    pub(super) const SAMPLE_TIMESTAMP: u8 = 2 << 3;
    pub(super) const SAMPLE_START: u8 = 3 << 3;
    pub(super) const METADATA_TYPE: u8 = 1 << 3;
    pub(super) const METADATA_HELP: u8 = 3 << 3;
    pub(super) const METADATA_UNIT: u8 = 4 << 3;
}

/// Index of a symbol in the request's table; 0 is the empty string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SymbolRef(u32);

impl SymbolRef {
    /// The symbol of the empty string, which every request has.
    pub const EMPTY: Self = Self(0);

    pub fn index(self) -> u32 {
        self.0
    }
}

/// A string's symbol in the last request that used it. Kept by the caller beside the string, it
/// spares [`RequestBuilder::remembered_symbol`] the look-up.
#[derive(Debug, Clone, Copy, Default)]
pub struct SymbolMemo {
    /// Number of the request; 0: none yet.
    request: u32,
    symbol: SymbolRef,
}

/// Type of a metric (`Metadata.MetricType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MetricKind {
    #[default]
    Unspecified = 0,
    /// A value that only increases, or restarts from 0.
    Counter = 1,
    /// A value that increases and decreases.
    Gauge = 2,
    /// Buckets, sum and count.
    Histogram = 3,
    /// Buckets that may decrease.
    GaugeHistogram = 4,
    /// Quantiles, sum and count.
    Summary = 5,
    /// Text in labels.
    Info = 6,
    /// States as booleans.
    StateSet = 7,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeriesMeta {
    pub kind: MetricKind,
    pub help: SymbolRef,
    pub unit: SymbolRef,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedRequest {
    /// The protobuf message, compressed with Snappy.
    pub body: Vec<u8>,
    /// Length of the message, uncompressed.
    pub message_bytes: usize,
    /// Number of samples, staleness markers included.
    pub samples: u32,
    /// Time of the oldest sample, in milliseconds since 1970; 0 without samples.
    pub oldest_ms: i64,
    /// Time of the newest sample, in milliseconds since 1970; 0 without samples.
    pub newest_ms: i64,
}

/// Builds one request after the other.
#[derive(Debug)]
pub struct RequestBuilder {
    /// Number of the current request, from 1. A builder makes fewer than 2^32.
    request: u32,
    /// The encoded field `symbols`.
    symbols: Vec<u8>,
    /// Position of each symbol's text in `symbols`.
    positions: Vec<Position>,
    table: SymbolTable,
    /// The encoded field `timeseries`.
    series: PieceWriter,
    /// The encoded `labels_refs` of one series.
    refs: Vec<u8>,
    samples: u32,
    oldest_ms: i64,
    newest_ms: i64,
}

#[derive(Debug, Clone, Copy)]
struct Position {
    start: usize,
    end: usize,
}

/// Finds symbols by their text: open addressing, with a key that a guest cannot know.
#[derive(Debug)]
struct SymbolTable {
    hasher: RandomState,
    /// Index of a symbol in each used slot; 0 is free. The length is a power of two.
    slots: Vec<u32>,
}

const MIN_SLOTS: usize = 1024;

impl Default for RequestBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestBuilder {
    pub fn new() -> Self {
        let mut builder = Self {
            request: 0,
            symbols: Vec::new(),
            positions: Vec::new(),
            table: SymbolTable {
                hasher: RandomState::new(),
                slots: vec![0; MIN_SLOTS],
            },
            series: PieceWriter::default(),
            refs: Vec::new(),
            samples: 0,
            oldest_ms: 0,
            newest_ms: 0,
        };
        builder.clear();
        builder
    }

    /// The symbol of a text. Each text is in the request once.
    pub fn symbol(&mut self, text: &str) -> SymbolRef {
        if text.is_empty() {
            return SymbolRef::EMPTY;
        }
        if self.positions.len() * 2 > self.table.slots.len() {
            self.grow();
        }
        let mask = self.table.slots.len() - 1;
        let mut slot = self.table.first_slot(text.as_bytes());
        loop {
            match self.table.slots[slot] {
                0 => break,
                found if self.text(found) == text.as_bytes() => return SymbolRef(found),
                _ => slot = (slot + 1) & mask,
            }
        }
        let symbol = u32::try_from(self.positions.len()).unwrap_or(u32::MAX);
        self.table.slots[slot] = symbol;
        self.push_symbol(text);
        SymbolRef(symbol)
    }

    /// As [`symbol`](Self::symbol), without a look-up if `memo` is of this request. A memo belongs
    /// to one text and one builder.
    #[inline]
    pub fn remembered_symbol(&mut self, memo: &mut SymbolMemo, text: &str) -> SymbolRef {
        if memo.request != self.request {
            memo.symbol = self.symbol(text);
            memo.request = self.request;
        }
        memo.symbol
    }

    /// Appends one sample of a series. `labels` are sorted by name, include `__name__`, and have no
    /// empty name or value. `start_ms` is the time at which the counter started; 0 if unknown.
    pub fn series(
        &mut self,
        labels: &[(SymbolRef, SymbolRef)],
        meta: SeriesMeta,
        timestamp_ms: i64,
        value: f64,
        start_ms: i64,
    ) {
        let bits = match value.to_bits() {
            STALE_NAN => STALE_NAN,
            _ if value.is_nan() => NORMAL_NAN,
            bits => bits,
        };
        self.refs.clear();
        for (name, value) in labels {
            put_varint(&mut self.refs, name.0.into());
            put_varint(&mut self.refs, value.0.into());
        }
        let refs = &self.refs;
        let time = timestamp_ms.cast_unsigned();
        let start = start_ms.cast_unsigned();
        let start_length = if start == 0 { 0 } else { 1 + varint_length(start) };
        let sample = 9 + 1 + varint_length(time) + start_length;
        let meta_length = meta_length(meta);
        let length = nested_length(refs.len())
            + nested_length(sample)
            + if meta_length == 0 {
                0
            } else {
                nested_length(meta_length)
            }
            + start_length;

        self.series.write(|out| {
            put_head(out, tag::REQUEST_TIMESERIES, length);
            put_head(out, tag::SERIES_LABELS_REFS, refs.len());
            out.extend_from_slice(refs);
            put_head(out, tag::SERIES_SAMPLES, sample);
            out.push(tag::SAMPLE_VALUE);
            out.extend_from_slice(&bits.to_le_bytes());
            out.push(tag::SAMPLE_TIMESTAMP);
            put_varint(out, time);
            put_number(out, tag::SAMPLE_START, start);
            if meta_length != 0 {
                put_head(out, tag::SERIES_METADATA, meta_length);
                put_number(out, tag::METADATA_TYPE, meta.kind as u64);
                put_number(out, tag::METADATA_HELP, meta.help.0.into());
                put_number(out, tag::METADATA_UNIT, meta.unit.0.into());
            }
            put_number(out, tag::SERIES_CREATED, start);
        });

        self.oldest_ms = if self.samples == 0 {
            timestamp_ms
        } else {
            self.oldest_ms.min(timestamp_ms)
        };
        self.newest_ms = if self.samples == 0 {
            timestamp_ms
        } else {
            self.newest_ms.max(timestamp_ms)
        };
        self.samples += 1;
    }

    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Time of the oldest sample in the current request, in milliseconds since 1970.
    pub fn oldest_ms(&self) -> Option<i64> {
        (self.samples > 0).then_some(self.oldest_ms)
    }

    /// Length of the current request, uncompressed.
    pub fn estimated_bytes(&self) -> usize {
        self.symbols.len() + self.series.len()
    }

    /// Returns the request and begins the next one. References of this request are invalid in the
    /// next.
    pub fn finish(&mut self) -> FinishedRequest {
        let message_bytes = self.estimated_bytes();
        let finished = FinishedRequest {
            body: self.series.finish(&self.symbols),
            message_bytes,
            samples: self.samples,
            oldest_ms: self.oldest_ms,
            newest_ms: self.newest_ms,
        };
        self.clear();
        finished
    }

    fn clear(&mut self) {
        self.request += 1;
        self.symbols.clear();
        self.positions.clear();
        self.table.slots.fill(0);
        (self.samples, self.oldest_ms, self.newest_ms) = (0, 0, 0);
        self.push_symbol("");
    }

    fn push_symbol(&mut self, text: &str) {
        put_head(&mut self.symbols, tag::REQUEST_SYMBOLS, text.len());
        let start = self.symbols.len();
        self.symbols.extend_from_slice(text.as_bytes());
        let end = self.symbols.len();
        self.positions.push(Position { start, end });
    }

    fn text(&self, symbol: u32) -> &[u8] {
        let position = self.positions[symbol as usize];
        &self.symbols[position.start..position.end]
    }

    fn grow(&mut self) {
        let length = self.table.slots.len() * 2;
        self.table.slots.clear();
        self.table.slots.resize(length, 0);
        for (index, position) in self.positions.iter().enumerate().skip(1) {
            let mut slot = self.table.first_slot(&self.symbols[position.start..position.end]);
            while self.table.slots[slot] != 0 {
                slot = (slot + 1) & (length - 1);
            }
            self.table.slots[slot] = u32::try_from(index).unwrap_or(u32::MAX);
        }
    }
}

impl SymbolTable {
    fn first_slot(&self, text: &[u8]) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the mask keeps the low bits only")]
        let hash = self.hasher.hash_one(text) as usize;
        hash & (self.slots.len() - 1)
    }
}

fn meta_length(meta: SeriesMeta) -> usize {
    let length = |number: u64| if number == 0 { 0 } else { 1 + varint_length(number) };
    length(meta.kind as u64) + length(meta.help.0.into()) + length(meta.unit.0.into())
}

/// Length of a nested message of `length` bytes with its tag and length.
fn nested_length(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

/// Length of a number as a varint, in bytes.
#[inline]
fn varint_length(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    out.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    (number & 0x7f) as u8
}

/// A field that is omitted if it is 0, as in proto3.
fn put_number(out: &mut Vec<u8>, tag: u8, number: u64) {
    if number != 0 {
        out.push(tag);
        put_varint(out, number);
    }
}

fn put_head(out: &mut Vec<u8>, tag: u8, length: usize) {
    out.push(tag);
    put_varint(out, length as u64);
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
