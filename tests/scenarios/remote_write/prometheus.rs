//! A real Prometheus as receiver.

use std::{fs, net::SocketAddr};

use virtfleet_collector::mla::send::{SendRefusal, SendResult};
use virtfleet_remote_write::{Compression, Protocol, RefusedReason, request::STALE_NAN};
use virtfleet_tests::{
    parts, ports,
    process::{Launch, Process},
    scrape::Client,
    skip,
    stage::STAGE_TIMEOUT,
    wait,
};

use super::{Sending, TIMEOUT, api, at, now_ms, one, request, stored};

const TIER: u8 = 3;
const BOTH: &[&str] = &["prometheus.WriteRequest", "io.prometheus.write.v2.Request"];
const ONLY_1_0: &[&str] = &["prometheus.WriteRequest"];

struct Receiver {
    program: std::path::PathBuf,
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Receiver {
    fn new(program: std::path::PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("prometheus.yml"), "{}\n").unwrap();
        let address = ports::free().unwrap();
        Self {
            program,
            folder,
            address,
        }
    }

    fn start(&self, messages: &[&str]) -> Process {
        let folder = self.folder.path();
        let file = folder.join("prometheus.yml");
        let mut process =
            Launch::new(&self.program)
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
                .arg(format!("--web.listen-address={}", self.address))
                .arg("--web.enable-remote-write-receiver")
                .args(messages.iter().map(|message| {
                    format!("--web.remote-write-receiver.accepted-protobuf-messages={message}")
                }))
                .arg("--enable-feature=created-timestamp-zero-ingestion")
                .start(folder)
                .unwrap();
        process.wait_for_port(self.address, STAGE_TIMEOUT).unwrap();
        // Until then it answers every request with 503.
        wait::eventually(STAGE_TIMEOUT, "Prometheus is ready", || {
            Client::plain(self.address, TIMEOUT)?.get("/-/ready")?.ok()
        })
        .unwrap();
        process
    }
}

fn delivered(written: Option<u64>) -> SendResult {
    SendResult::Delivered { written, missing: 0 }
}

#[test]
fn tier3_prometheus_stores_what_is_sent_with_2_0() {
    let test = "tier3_prometheus_stores_what_is_sent_with_2_0";
    let Some(program) = skip::need(TIER, test, parts::prometheus()).unwrap() else {
        return;
    };
    let receiver = Receiver::new(program);
    let _process = receiver.start(BOTH);
    let sending = Sending::to(at(receiver.address));
    let now = now_ms();
    let (first, second) = (now - 20_000, now - 10_000);
    let rows = [
        ("temperature", "a", first, 20.5, 0),
        ("temperature", "b", first, -1.0, 0),
        ("work_total", "a", first, 7.0, first - 5_000),
    ];
    let outcome = sending.send(&request(&rows));
    assert_eq!(outcome.form.protocol, Protocol::V2);
    assert_eq!((outcome.result, outcome.requests), (delivered(Some(3)), 1));
    // After a crash the same request is sent again.
    sending.send(&request(&rows));
    let stale = f64::from_bits(STALE_NAN);
    let next = [
        ("temperature", "a", second, 21.0, 0),
        ("temperature", "b", second, stale, 0),
    ];
    assert_eq!(sending.send(&request(&next)).result, delivered(Some(2)));
    let temperatures = stored(receiver.address, "temperature").unwrap();
    assert_eq!(temperatures["a"], [(first, 20.5), (second, 21.0)], "each once");
    assert_eq!(temperatures["b"], [(first, -1.0)], "a stale marker is no value");
    let time = now / 1000;
    let answer = api(
        receiver.address,
        "/api/v1/query",
        "temperature",
        &format!("&time={time}"),
    );
    let answer = answer.unwrap();
    let [series] = answer["data"]["result"].as_array().unwrap().as_slice() else {
        panic!("{answer}");
    };
    assert_eq!(series["metric"]["vm"], "a", "the other has ended");
    assert_eq!(
        stored(receiver.address, "work_total").unwrap()["a"],
        [(first - 5_000, 0.0), (first, 7.0)],
        "Prometheus knows when the counter started"
    );
}

#[test]
fn tier3_prometheus_writes_a_part_and_the_rest_is_counted() {
    let test = "tier3_prometheus_writes_a_part_and_the_rest_is_counted";
    let Some(program) = skip::need(TIER, test, parts::prometheus()).unwrap() else {
        return;
    };
    let receiver = Receiver::new(program);
    let _process = receiver.start(BOTH);
    let sending = Sending::to(at(receiver.address));
    let now = now_ms();
    sending.send(&request(&[("t", "a", now - 1000, 1.0, 0)]));
    let rows = [
        ("t", "a", now - 9000, 2.0, 0),
        ("t", "b", now, 3.0, 0),
        ("t", "c", now, 4.0, 0),
    ];
    let outcome = sending.send(&request(&rows));
    let SendResult::Refused {
        reason,
        samples,
        message,
    } = outcome.result
    else {
        panic!("{outcome:?}");
    };
    assert_eq!(
        reason,
        SendRefusal::Answer(RefusedReason::PartialWrite),
        "{message}"
    );
    assert_eq!((samples, outcome.requests), (1, 1), "{message}");
    assert!(message.contains("out of order"), "{message}");
    assert_eq!(stored(receiver.address, "t").unwrap().len(), 3);
}

#[test]
fn tier3_prometheus_with_1_0_only_gets_1_0_until_it_is_upgraded() {
    let test = "tier3_prometheus_with_1_0_only_gets_1_0_until_it_is_upgraded";
    let Some(program) = skip::need(TIER, test, parts::prometheus()).unwrap() else {
        return;
    };
    let receiver = Receiver::new(program);
    let process = receiver.start(ONLY_1_0);
    let sending = Sending::to(at(receiver.address));
    let now = now_ms();
    for (step, requests) in [(0, 3), (1, 1), (2, 1)] {
        let outcome = sending.send(&request(&[("t", "a", now + step, 1.0, 0)]));
        assert_eq!(outcome.form.protocol, Protocol::V1);
        assert_eq!(outcome.form.compression, Compression::Snappy);
        assert_eq!((outcome.result, outcome.requests), (delivered(None), requests));
    }
    assert_eq!(stored(receiver.address, "t").unwrap()["a"].len(), 3);
    process.terminate(STAGE_TIMEOUT).unwrap();
    let failed = sending.send(&one(1.0));
    assert!(matches!(failed.result, SendResult::Retry { .. }), "{failed:?}");
    let _process = receiver.start(BOTH);
    // The preferred version is tried again a minute after the last trial; a new sender tries it
    // at once.
    let outcome = sending.send(&one(1.0));
    assert_eq!(outcome.form.protocol, Protocol::V1);
    let restarted = Sending::to(at(receiver.address)).send(&one(2.0));
    assert_eq!(restarted.form.protocol, Protocol::V2);
    assert_eq!(restarted.result, delivered(Some(1)));
}
