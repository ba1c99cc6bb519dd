//! Prometheus' protocol for reading all samples of some series, stale markers included. A range
//! query leaves stale markers out, and `promtool tsdb dump` reads the whole write-ahead log for
//! each selector.
//!
//! Source: `prompb/remote.proto` in github.com/prometheus/prometheus.

use anyhow::{Result, ensure};
use prost::Message as _;
use virtfleet_remote_write::{Compression, compress, decompress, message::v1};

use super::stored::{Labels, Samples};

/// Headers of a request.
pub(super) const HEADERS: [(&str, &str); 3] = [
    ("content-encoding", "snappy"),
    ("content-type", "application/x-protobuf"),
    ("x-prometheus-remote-read-version", "0.1.0"),
];
/// Maximum size of an answer in bytes, uncompressed.
const MAX_ANSWER_BYTES: usize = 1 << 30;

#[derive(Clone, PartialEq, prost::Message)]
struct ReadRequest {
    #[prost(message, repeated, tag = "1")]
    queries: Vec<Query>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Query {
    /// Milliseconds since 1970, inclusive, as is the end.
    #[prost(int64, tag = "1")]
    start: i64,
    #[prost(int64, tag = "2")]
    end: i64,
    #[prost(message, repeated, tag = "3")]
    matchers: Vec<LabelMatcher>,
}

/// A label with this value, as type 0 says.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct LabelMatcher {
    #[prost(int32, tag = "1")]
    r#type: i32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReadResponse {
    #[prost(message, repeated, tag = "1")]
    results: Vec<QueryResult>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct QueryResult {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<v1::TimeSeries>,
}

/// The body of a request for all samples of the series with this label.
pub(super) fn request(label: &str, value: &str) -> Vec<u8> {
    let query = Query {
        start: 0,
        // Later than any sample, and far from the largest number, with which Prometheus calculates.
        end: 1 << 50,
        matchers: vec![LabelMatcher {
            r#type: 0,
            name: label.to_owned(),
            value: value.to_owned(),
        }],
    };
    let request = ReadRequest { queries: vec![query] };
    compress(Compression::Snappy, &request.encode_to_vec())
}

/// The series in the body of an answer.
pub(super) fn series(body: &[u8]) -> Result<Vec<(Labels, Samples)>> {
    let message = decompress(Compression::Snappy, body, MAX_ANSWER_BYTES)?;
    let mut results = ReadResponse::decode(message.as_slice())?.results;
    ensure!(results.len() == 1, "{} results for one query", results.len());
    let all = results.remove(0).timeseries.into_iter();
    let series = all.map(|series| {
        let labels = series.labels.into_iter();
        let samples = series.samples.iter();
        (
            labels.map(|label| (label.name, label.value)).collect(),
            samples.map(|sample| (sample.timestamp, sample.value)).collect(),
        )
    });
    Ok(series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_samples_of_an_answer_are_read_and_a_damaged_one_is_an_error() {
        let sample = |timestamp, value| v1::Sample { value, timestamp };
        let response = ReadResponse {
            results: vec![QueryResult {
                timeseries: vec![v1::TimeSeries {
                    labels: vec![v1::Label {
                        name: "__name__".to_owned(),
                        value: "up".to_owned(),
                    }],
                    samples: vec![sample(1000, 1.0), sample(2000, f64::NAN)],
                }],
            }],
        };
        let mut body = compress(Compression::Snappy, &response.encode_to_vec());
        let all = series(&body).unwrap();
        let (labels, samples) = &all[0];
        assert_eq!((all.len(), labels["__name__"].as_str()), (1, "up"));
        assert_eq!((samples.len(), samples[0]), (2, (1000, 1.0)));
        assert!(samples[1].0 == 2000 && samples[1].1.is_nan());
        body.pop();
        series(&body).unwrap_err();
        series(&compress(Compression::Snappy, &[])).unwrap_err();
    }

    #[test]
    fn a_request_names_the_label() {
        let body = decompress(Compression::Snappy, &request("cluster", "a"), 1000).unwrap();
        let query = ReadRequest::decode(body.as_slice()).unwrap().queries.remove(0);
        let matcher = &query.matchers[0];
        assert_eq!((matcher.name.as_str(), matcher.value.as_str()), ("cluster", "a"));
        assert!(query.start == 0 && query.end > 0);
    }
}
