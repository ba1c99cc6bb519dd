//! The sender of remote write against a recording receiver, real Prometheus and VictoriaMetrics,
//! and nginx set up as the MLA gateway of KKP is.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

mod answers;
mod compliance;
mod gateway;
mod prometheus;
mod requests;
mod transport;
mod victoria;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use hyper::HeaderMap;
use virtfleet_collector::mla::send::{Endpoint, SendOutcome, Sender, parse_url};
use virtfleet_remote_write::{
    Compression, CompressionSetting, ProtocolSetting,
    request::{FinishedRequest, MetricKind, RequestBuilder, SeriesMeta, SymbolRef},
};
use virtfleet_tests::scrape::Client;

const TIMEOUT: Duration = Duration::from_secs(30);

fn endpoint(url: &str) -> Endpoint {
    Endpoint {
        url: parse_url(url).unwrap(),
        headers: HeaderMap::new(),
        tls: None,
        server_name: None,
        protocol: ProtocolSetting::Auto,
        compression: CompressionSetting::Auto,
        timeout: TIMEOUT,
        user_agent: "virtfleet-collector/0.1.0".to_owned(),
    }
}

fn at(address: SocketAddr) -> Endpoint {
    endpoint(&format!("http://{address}/api/v1/write"))
}

/// A sender with the runtime that drives it.
struct Sending {
    sender: Sender,
    runtime: tokio::runtime::Runtime,
}

impl Sending {
    fn to(endpoint: Endpoint) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let sender = {
            let _inside = runtime.enter();
            Sender::new(endpoint).unwrap()
        };
        Self { sender, runtime }
    }

    fn send(&self, request: &FinishedRequest) -> SendOutcome {
        let body = Bytes::from(request.body.clone());
        let sending = self.sender.send(&body, Compression::Snappy, request.samples);
        self.runtime.block_on(sending)
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// Samples of one request: name, value of the label `vm`, time, value, start of the counter.
type Row<'a> = (&'a str, &'a str, i64, f64, i64);

fn request(rows: &[Row<'_>]) -> FinishedRequest {
    let mut builder = RequestBuilder::new();
    for &(name, vm, time, value, start) in rows {
        let labels: Vec<(SymbolRef, SymbolRef)> = [("__name__", name), ("vm", vm)]
            .map(|(label, text)| (builder.symbol(label), builder.symbol(text)))
            .to_vec();
        let kind = match start {
            0 => MetricKind::Gauge,
            _ => MetricKind::Counter,
        };
        let help = builder.symbol("Help of it.");
        let meta = SeriesMeta {
            kind,
            help,
            unit: SymbolRef::default(),
        };
        builder.series(&labels, meta, time, value, start);
    }
    builder.finish()
}

fn one(value: f64) -> FinishedRequest {
    request(&[("temperature", "a", now_ms(), value, 0)])
}

/// An answer of the HTTP API of Prometheus, which VictoriaMetrics has, too.
fn api(address: SocketAddr, path: &str, promql: &str, rest: &str) -> anyhow::Result<serde_json::Value> {
    let encoded = virtfleet_tests::prometheus::encode(promql);
    Client::plain(address, TIMEOUT)?
        .get(&format!("{path}?query={encoded}{rest}"))?
        .ok()?
        .json()
}

/// All stored samples of a selector of the last hour, by the label `vm`: time in milliseconds and
/// value.
fn stored(address: SocketAddr, selector: &str) -> anyhow::Result<BTreeMap<String, Vec<(i64, f64)>>> {
    let answer = api(address, "/api/v1/query", &format!("{selector}[1h]"), "")?;
    let mut all = BTreeMap::new();
    for series in answer["data"]["result"].as_array().into_iter().flatten() {
        let samples = series["values"].as_array().into_iter().flatten().map(|pair| {
            let value = pair[1].as_str().unwrap_or_default().parse().unwrap_or(f64::NAN);
            #[expect(clippy::cast_possible_truncation, reason = "milliseconds of this century")]
            let time = (pair[0].as_f64().unwrap_or_default() * 1000.0).round() as i64;
            (time, value)
        });
        let vm = series["metric"]["vm"].as_str().unwrap_or_default();
        all.insert(vm.to_owned(), samples.collect());
    }
    Ok(all)
}
