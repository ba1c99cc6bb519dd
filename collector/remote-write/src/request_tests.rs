use prost::Message;

use super::*;
use crate::{Compression, MAX_MESSAGE_BYTES, decompress};

// The messages as the specification has them, apart from the module's own encoder.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(uint32, repeated, tag = "1")]
    labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Metadata>,
    #[prost(int64, tag = "6")]
    created_timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
    #[prost(int64, tag = "3")]
    start_timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(uint32, tag = "3")]
    help_ref: u32,
    #[prost(uint32, tag = "4")]
    unit_ref: u32,
}

fn message(finished: &FinishedRequest) -> Vec<u8> {
    let message = decompress(Compression::Snappy, &finished.body, MAX_MESSAGE_BYTES).unwrap();
    assert_eq!(message.len(), finished.message_bytes);
    message
}

fn decode(finished: &FinishedRequest) -> Request {
    Request::decode(message(finished).as_slice()).unwrap()
}

/// The labels of each series, by name.
fn labels(request: &Request) -> Vec<Vec<(&str, &str)>> {
    let text = |index: u32| request.symbols[index as usize].as_str();
    let of = |series: &TimeSeries| {
        let pairs = series.labels_refs.chunks_exact(2);
        assert_eq!(series.labels_refs.len() % 2, 0);
        pairs.map(|pair| (text(pair[0]), text(pair[1]))).collect()
    };
    request.timeseries.iter().map(of).collect()
}

#[test]
fn a_request_decodes_to_what_was_written() {
    let mut builder = RequestBuilder::new();
    for round in 0..3_i64 {
        assert_eq!((builder.samples(), builder.oldest_ms()), (0, None));
        let name = (builder.symbol("__name__"), builder.symbol("node_load1"));
        let instance = (builder.symbol("instance"), builder.symbol("é\u{1F600}"));
        assert_eq!(builder.symbol("node_load1"), name.1);
        assert_eq!(builder.symbol(""), SymbolRef::EMPTY);
        let meta = SeriesMeta {
            kind: MetricKind::Counter,
            help: builder.symbol("Load."),
            unit: builder.symbol("seconds"),
        };
        builder.series(
            &[name, instance],
            meta,
            1_700_000_000_000 + round,
            0.5,
            1_600_000_000_000,
        );
        builder.series(
            &[name],
            SeriesMeta::default(),
            1_600_000_000_000,
            f64::INFINITY,
            0,
        );
        let estimated = builder.estimated_bytes();
        let finished = builder.finish();
        assert_eq!(finished.message_bytes, estimated);
        assert_eq!((finished.samples, finished.oldest_ms), (2, 1_600_000_000_000));
        assert_eq!(finished.newest_ms, 1_700_000_000_000 + round);
        let request = decode(&finished);
        assert_eq!(
            request.symbols,
            [
                "",
                "__name__",
                "node_load1",
                "instance",
                "é\u{1F600}",
                "Load.",
                "seconds"
            ]
        );
        assert_eq!(
            labels(&request),
            [
                vec![("__name__", "node_load1"), ("instance", "é\u{1F600}")],
                vec![("__name__", "node_load1")]
            ]
        );
        let first = &request.timeseries[0];
        let metadata = Metadata {
            kind: 1,
            help_ref: 5,
            unit_ref: 6,
        };
        assert_eq!(first.metadata, Some(metadata));
        assert_eq!(first.created_timestamp, 1_600_000_000_000);
        assert_eq!(first.samples[0].start_timestamp, 1_600_000_000_000);
        assert!((first.samples[0].value - 0.5).abs() < f64::EPSILON);
        let second = &request.timeseries[1];
        assert_eq!((second.created_timestamp, &second.metadata), (0, &None));
        // The generated encoder writes the same bytes.
        assert_eq!(request.encode_to_vec(), message(&finished));
    }
}

#[test]
fn a_nan_of_a_guest_is_no_staleness_marker() {
    let mut builder = RequestBuilder::new();
    let name = (builder.symbol("__name__"), builder.symbol("a"));
    for value in [
        f64::NAN,
        -f64::NAN,
        f64::from_bits(0x7ff0_0000_0000_0001),
        f64::from_bits(STALE_NAN),
    ] {
        builder.series(&[name], SeriesMeta::default(), 1, value, 0);
    }
    let request = decode(&builder.finish());
    let bits: Vec<_> = request
        .timeseries
        .iter()
        .map(|one| one.samples[0].value.to_bits())
        .collect();
    assert_eq!(bits, [NORMAL_NAN, NORMAL_NAN, NORMAL_NAN, STALE_NAN]);
}

#[test]
fn many_symbols_keep_their_references() {
    let mut builder = RequestBuilder::new();
    let mut memos = vec![SymbolMemo::default(); 20_000];
    for round in 0..2 {
        let name = builder.symbol("__name__");
        for (n, memo) in memos.iter_mut().enumerate() {
            let text = format!("m{n}");
            let symbol = builder.remembered_symbol(memo, &text);
            assert_eq!(builder.symbol(&text), symbol);
            assert_eq!(builder.remembered_symbol(memo, &text), symbol);
            builder.series(&[(name, symbol)], SeriesMeta::default(), -1, -0.0, 0);
        }
        let request = decode(&builder.finish());
        for (n, labels) in labels(&request).iter().enumerate() {
            assert_eq!(labels[0].1, format!("m{n}"), "round {round}");
        }
        assert_eq!(request.timeseries[7].samples[0].timestamp, -1);
        assert_eq!(builder.symbol("__name__").index(), 1);
    }
}

#[test]
fn the_length_of_a_varint() {
    for (number, length) in [
        (0, 1),
        (127, 1),
        (128, 2),
        (16_383, 2),
        (16_384, 3),
        (u64::MAX, 10),
    ] {
        let mut out = Vec::new();
        put_varint(&mut out, number);
        assert_eq!((out.len(), varint_length(number)), (length, length), "{number}");
    }
}
