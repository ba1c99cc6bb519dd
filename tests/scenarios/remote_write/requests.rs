//! What the specification requires of requests: headers, messages, series.

use hyper::header::HeaderValue;
use virtfleet_remote_write::{
    Compression, WireForm,
    message::{MessageMetricType, v2},
    request::STALE_NAN,
};
use virtfleet_tests::remote_write::{PageSender, Recorder, Reply};

use super::{Sending, at, endpoint, now_ms, one};

const PAGE: &str = "\
# HELP http_requests_total Requests.
# TYPE http_requests_total counter
http_requests_total{code=\"200\",zone=\"b\",app=\"x\"} 7
http_requests_total{code=\"500\",zone=\"\",app=\"x\"} 1
# TYPE latency_seconds histogram
latency_seconds_bucket{le=\"0.1\"} 3
latency_seconds_bucket{le=\"+Inf\"} 4
latency_seconds_sum 0.5
latency_seconds_count 4
nothing NaN
below -15.5
above +Inf
small 1e-308
unicode{name=\"grün\\\"\\\\\\n\"} 1
";

fn written() -> Recorder {
    Recorder::start(|_, request| {
        let samples = request.v2().map_or(0, |request| request.timeseries.len());
        Some(Reply::status(204).written(samples as u64))
    })
    .unwrap()
}

#[test]
fn a_request_is_a_post_to_the_path_with_the_reserved_headers() {
    let recorder = written();
    let address = recorder.address();
    let mut endpoint = endpoint(&format!("http://{address}/tenants/a/push?flavour=x%2Fy"));
    endpoint
        .headers
        .insert("x-scope-orgid", HeaderValue::from_static("a"));
    Sending::to(endpoint).send(&one(1.0));
    let sent = recorder.last().unwrap();
    assert_eq!(sent.method, "POST");
    assert_eq!(sent.path, "/tenants/a/push?flavour=x%2Fy");
    for (name, value) in [
        (
            "content-type",
            "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        ),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "2.0.0"),
        ("user-agent", "virtfleet-collector/0.1.0"),
        ("x-scope-orgid", "a"),
    ] {
        let values: Vec<_> = sent.headers.get_all(name).iter().collect();
        assert_eq!(values, [value], "{name}");
    }
    assert_eq!(sent.header("content-length"), sent.body.len().to_string());
    assert!(sent.v2().is_ok(), "a snappy block");
}

/// The decoded symbol.
fn symbol(request: &v2::Request, index: u32) -> &str {
    &request.symbols[usize::try_from(index).unwrap()]
}

fn labels<'a>(request: &'a v2::Request, series: &v2::TimeSeries) -> Vec<(&'a str, &'a str)> {
    let refs = series.labels_refs.chunks_exact(2);
    refs.map(|pair| (symbol(request, pair[0]), symbol(request, pair[1])))
        .collect()
}

fn sent_page(page: &str) -> v2::Request {
    let recorder = written();
    let sending = Sending::to(at(recorder.address()));
    let mut pages = PageSender::new(&[("job", "node"), ("instance", "a:1")]);
    for request in pages.scraped(Some(page), now_ms()) {
        sending.send(&request);
    }
    recorder.last().unwrap().v2().unwrap()
}

#[test]
fn symbols_are_complete_deduplicated_and_begin_with_the_empty_one() {
    let request = sent_page(PAGE);
    assert_eq!(request.symbols[0], "");
    let mut sorted = request.symbols.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), request.symbols.len());
    // decode_v2 has checked every reference; each symbol is also used.
    let mut used: Vec<u32> = request
        .timeseries
        .iter()
        .flat_map(|series| {
            let meta = series.metadata.map(|meta| [meta.help_ref, meta.unit_ref]);
            series
                .labels_refs
                .iter()
                .copied()
                .chain(meta.into_iter().flatten())
        })
        .collect();
    used.push(0);
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), request.symbols.len());
}

#[test]
fn labels_are_complete_sorted_unique_and_not_empty() {
    let request = sent_page(PAGE);
    for series in &request.timeseries {
        let labels = labels(&request, series);
        assert!(
            labels.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "sorted, each name once: {labels:?}"
        );
        assert!(
            labels
                .iter()
                .all(|(name, value)| !name.is_empty() && !value.is_empty()),
            "{labels:?}"
        );
        for name in ["__name__", "job", "instance"] {
            assert!(labels.iter().any(|label| label.0 == name), "{name}: {labels:?}");
        }
    }
    let unicode = request.timeseries.iter().map(|series| labels(&request, series));
    assert!(unicode.flatten().any(|label| label == ("name", "grün\"\\\n")));
}

#[test]
fn samples_have_their_values_and_times_in_milliseconds() {
    let before = now_ms();
    let request = sent_page(PAGE);
    let value = |name: &str| {
        let series = request
            .timeseries
            .iter()
            .find(|series| labels(&request, series).contains(&("__name__", name)));
        let samples = &series.unwrap().samples;
        assert_eq!(samples.len(), 1, "at least one, and never more at a time");
        assert!((before..=now_ms()).contains(&samples[0].timestamp));
        samples[0].value
    };
    for (name, expected) in [
        ("below", -15.5),
        ("above", f64::INFINITY),
        ("small", 1e-308),
        ("latency_seconds_sum", 0.5),
    ] {
        assert_eq!(value(name).to_bits(), expected.to_bits(), "{name}");
    }
    assert!(value("nothing").is_nan());
    assert_ne!(value("nothing").to_bits(), STALE_NAN, "no stale marker");
}

#[test]
fn metadata_names_type_and_help() {
    let request = sent_page(PAGE);
    for (name, kind, help) in [
        ("http_requests_total", MessageMetricType::Counter, "Requests."),
        ("latency_seconds_bucket", MessageMetricType::Histogram, ""),
        ("latency_seconds_sum", MessageMetricType::Histogram, ""),
        ("up", MessageMetricType::Gauge, ""),
    ] {
        let series = request
            .timeseries
            .iter()
            .find(|series| labels(&request, series).contains(&("__name__", name)));
        let metadata = series.unwrap().metadata.unwrap();
        assert_eq!(metadata.r#type, kind as i32, "{name}");
        assert_eq!(symbol(&request, metadata.help_ref), help, "{name}");
    }
}

#[test]
fn a_series_that_is_gone_ends_with_a_stale_marker() {
    let recorder = written();
    let sending = Sending::to(at(recorder.address()));
    let mut pages = PageSender::new(&[("job", "node"), ("instance", "a:1")]);
    for page in [Some("a 1\nb 2\n"), Some("a 1\n"), None] {
        for request in pages.scraped(page, now_ms()) {
            sending.send(&request);
        }
    }
    let ended: Vec<Vec<String>> = recorder
        .recorded()
        .iter()
        .map(|sent| {
            let request = sent.v2().unwrap();
            let stale = request
                .timeseries
                .iter()
                .filter(|series| series.samples.iter().any(|one| one.value.to_bits() == STALE_NAN));
            stale
                .map(|series| labels(&request, series)[0].1.to_owned())
                .collect()
        })
        .collect();
    assert_eq!(ended, [vec![], vec!["b".to_owned()], vec!["a".to_owned()]]);
}

#[test]
fn many_series_share_a_request_of_bounded_size() {
    let lines: Vec<_> = (0..25_000)
        .map(|number| format!("m{{n=\"{number}\"}} 1\n"))
        .collect();
    let page = lines.concat();
    let recorder = written();
    let sending = Sending::to(at(recorder.address()));
    let mut pages = PageSender::new(&[("job", "node")]);
    for request in pages.scraped(Some(&page), now_ms()) {
        sending.send(&request);
    }
    let sizes: Vec<usize> = recorder
        .recorded()
        .iter()
        .map(|sent| sent.v2().unwrap().timeseries.len())
        .collect();
    assert_eq!(sizes, [10_000, 10_000, 5_001]);
}

#[test]
fn a_request_of_1_0_has_its_headers_its_labels_and_metadata_once_a_minute() {
    let recorder = Recorder::start(|_, request| {
        let old = request.header("content-type") == "application/x-protobuf";
        let snappy = request.header("content-encoding") == "snappy";
        Some(Reply::status(if old && snappy { 200 } else { 415 }))
    })
    .unwrap();
    let sending = Sending::to(at(recorder.address()));
    let outcome = sending.send(&one(1.5));
    assert_eq!(outcome.requests, 3, "2.0, 1.0 with zstd, 1.0 with snappy");
    let sent = recorder.last().unwrap();
    assert_eq!(sent.header("x-prometheus-remote-write-version"), "0.1.0");
    assert_eq!(sent.header("content-encoding"), "snappy");
    let message = sent.v1().unwrap();
    let labels: Vec<(&str, &str)> = message.timeseries[0]
        .labels
        .iter()
        .map(|label| (label.name.as_str(), label.value.as_str()))
        .collect();
    assert_eq!(labels, [("__name__", "temperature"), ("vm", "a")]);
    assert_eq!(
        message.timeseries[0].samples[0].value.to_bits(),
        1.5_f64.to_bits()
    );
    let [metadata] = message.metadata.as_slice() else {
        panic!("{:?}", message.metadata);
    };
    assert_eq!(metadata.metric_family_name, "temperature");
    assert_eq!(metadata.help, "Help of it.");
    sending.send(&one(2.0));
    assert!(recorder.last().unwrap().v1().unwrap().metadata.is_empty());
    let (WireForm { compression, .. }, proven) = sending.sender.form();
    assert_eq!((compression, proven), (Compression::Snappy, true));
}
