use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::{
    decode_v1, decode_v2,
    message::{v1, v2},
};

/// Bits of the NaN that ends a series.
const STALE_NAN: u64 = 0x7ff0_0000_0000_0002;

/// The same conversion by way of the structures.
fn reference(request: &v2::Request) -> v1::WriteRequest {
    let symbol = |index: u32| request.symbols[usize::try_from(index).unwrap()].clone();
    let mut out = v1::WriteRequest::default();
    let mut families = HashSet::new();
    for series in &request.timeseries {
        if series.samples.is_empty() {
            continue;
        }
        let labels: Vec<v1::Label> = series
            .labels_refs
            .chunks(2)
            .map(|pair| v1::Label {
                name: symbol(pair[0]),
                value: symbol(pair[1]),
            })
            .filter(|label| !label.value.is_empty())
            .collect();
        let name = labels.iter().find(|label| label.name == "__name__").cloned();
        let samples = series.samples.iter().map(|sample| v1::Sample {
            value: sample.value,
            timestamp: sample.timestamp,
        });
        out.timeseries.push(v1::TimeSeries {
            labels,
            samples: samples.collect(),
        });
        if let (Some(metadata), Some(name)) = (series.metadata, name) {
            let kind = MessageMetricType::try_from(metadata.r#type).unwrap_or(MessageMetricType::Unspecified);
            let entry = v1::MetricMetadata {
                r#type: kind as i32,
                metric_family_name: family(&name.value, kind).to_owned(),
                help: symbol(metadata.help_ref),
                unit: symbol(metadata.unit_ref),
            };
            let empty =
                kind == MessageMetricType::Unspecified && entry.help.is_empty() && entry.unit.is_empty();
            if !empty && families.insert(entry.metric_family_name.clone()) {
                out.metadata.push(entry);
            }
        }
    }
    out
}

/// Any value but -0.0, which prost writes as 0.0.
fn value() -> impl Strategy<Value = f64> {
    any::<f64>().prop_map(|value| if value == 0.0 { 0.0 } else { value })
}

prop_compose! {
    fn series(symbols: u32)(
        labels in prop::collection::vec((1..symbols, 0..symbols), 0..5),
        samples in prop::collection::vec((value(), any::<i64>(), any::<i64>()), 0..4),
        metadata in prop::option::of((-1..9_i32, 0..symbols, 0..symbols)),
    ) -> v2::TimeSeries {
        v2::TimeSeries {
            labels_refs: labels.into_iter().flat_map(|(name, value)| [name, value]).collect(),
            samples: samples
                .into_iter()
                .map(|(value, timestamp, start_timestamp)| v2::Sample { value, timestamp, start_timestamp })
                .collect(),
            metadata: metadata.map(|(kind, help_ref, unit_ref)| v2::Metadata { r#type: kind, help_ref, unit_ref }),
        }
    }
}

fn requests() -> impl Strategy<Value = v2::Request> {
    let symbols = prop::collection::vec(
        prop_oneof![Just("__name__".to_owned()), "[a-z_é]{1,6}(_sum|_bucket|_total)?"],
        1..12,
    );
    symbols.prop_flat_map(|mut symbols| {
        symbols.insert(0, String::new());
        let count = u32::try_from(symbols.len()).unwrap();
        prop::collection::vec(series(count), 0..8).prop_map(move |timeseries| v2::Request {
            symbols: symbols.clone(),
            timeseries,
        })
    })
}

/// Bits, because a NaN does not equal itself.
fn bits(request: &v1::WriteRequest) -> Vec<(u64, i64)> {
    let samples = request.timeseries.iter().flat_map(|series| &series.samples);
    samples
        .map(|sample| (sample.value.to_bits(), sample.timestamp))
        .collect()
}

proptest! {
    #[test]
    fn bytes_are_those_of_the_conversion_through_structures(request in requests()) {
        let expected = reference(&request);
        let out = to_v1(&request.encode_to_vec()).unwrap();
        prop_assert_eq!(bits(&decode_v1(&out).unwrap()), bits(&expected));
        prop_assert_eq!(out, expected.encode_to_vec());
    }

    #[test]
    fn hostile_bytes_never_panic_and_both_decoders_agree(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(decode_v1(&bytes));
        let out = to_v1(&bytes);
        if decode_v2(&bytes).is_err() {
            return Ok(());
        }
        match out {
            Ok(out) => prop_assert!(decode_v1(&out).is_ok()),
            Err(error) => prop_assert!(
                matches!(error, DecodeError::EmptyLabelName | DecodeError::WireType { .. }),
                "{}", error
            ),
        }
    }

    #[test]
    fn a_damaged_message_never_panics(request in requests(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = request.encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(out) = to_v1(&bytes) {
            prop_assert!(decode_v1(&out).is_ok());
        }
        bytes.truncate(at);
        if let Ok(out) = to_v1(&bytes) {
            prop_assert!(decode_v1(&out).is_ok());
        }
    }
}

fn small() -> v2::Request {
    let symbols = [
        "",
        "__name__",
        "t_seconds_sum",
        "vm",
        "a",
        "Help.",
        "seconds",
        "t_seconds_count",
    ];
    let series = |name, value, kind| v2::TimeSeries {
        labels_refs: vec![1, name, 3, 4],
        samples: vec![v2::Sample {
            value,
            timestamp: 1_700_000_000_000,
            start_timestamp: 1_600_000_000_000,
        }],
        metadata: Some(v2::Metadata {
            r#type: kind,
            help_ref: 5,
            unit_ref: 6,
        }),
    };
    v2::Request {
        symbols: symbols.map(str::to_owned).to_vec(),
        timeseries: vec![series(2, 1.5, 5), series(7, f64::from_bits(STALE_NAN), 5)],
    }
}

#[test]
fn a_stale_marker_keeps_its_bits_and_a_family_has_its_metadata_once() {
    let out = decode_v1(&to_v1(&small().encode_to_vec()).unwrap()).unwrap();
    assert_eq!(bits(&out)[1], (STALE_NAN, 1_700_000_000_000));
    let labels: BTreeMap<_, _> = out.timeseries[0]
        .labels
        .iter()
        .map(|label| (label.name.as_str(), label.value.as_str()))
        .collect();
    assert_eq!(
        labels,
        BTreeMap::from([("__name__", "t_seconds_sum"), ("vm", "a")])
    );
    let [metadata] = out.metadata.as_slice() else {
        panic!("{:?}", out.metadata);
    };
    assert_eq!(metadata.metric_family_name, "t_seconds");
    assert_eq!(
        (metadata.help.as_str(), metadata.unit.as_str()),
        ("Help.", "seconds")
    );
    let without = to_v1_with(&small().encode_to_vec(), |family| {
        assert_eq!(family, "t_seconds");
        false
    });
    assert!(decode_v1(&without.unwrap()).unwrap().metadata.is_empty());
}

#[test]
fn few_bytes_do_not_become_many() {
    // One symbol of 1 MB, named by each of 100,000 series.
    let mut message = Vec::new();
    write_bytes(&mut message, 4, b"");
    write_bytes(&mut message, 4, b"n");
    write_bytes(&mut message, 4, &vec![b'x'; 1 << 20]);
    for _ in 0..100_000 {
        write_bytes(&mut message, 5, &[0x0a, 2, 1, 2, 0x12, 2, 0x10, 1]);
    }
    assert!(matches!(to_v1(&message), Err(DecodeError::TooLarge { .. })));
}

#[test]
fn unpacked_references_and_unknown_fields_are_read() {
    let mut message = small().encode_to_vec();
    // Field 9, unknown.
    message.extend_from_slice(&[0x4a, 1, 0]);
    // A series with references one by one, an exemplar, and a sample.
    let series = [0x08, 1, 0x08, 2, 0x22, 0, 0x12, 2, 0x10, 5];
    write_bytes(&mut message, 5, &series);
    let out = decode_v1(&to_v1(&message).unwrap()).unwrap();
    assert_eq!(out.timeseries[2].labels[0].value, "t_seconds_sum");
    assert_eq!(out.timeseries[2].samples[0].timestamp, 5);
}
