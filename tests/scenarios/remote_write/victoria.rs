//! A real VictoriaMetrics as receiver: 1.0, and zstd.

use anyhow::ensure;
use virtfleet_collector::mla::send::SendResult;
use virtfleet_remote_write::{Compression, Protocol, WireForm, request::STALE_NAN};
use virtfleet_tests::{parts, ports, process::Launch, scrape::Client, skip, stage::STAGE_TIMEOUT, wait};

use super::{Sending, TIMEOUT, api, at, now_ms, request, stored};

const TIER: u8 = 3;

#[test]
fn tier3_victoria_metrics_gets_1_0_with_zstd() {
    let test = "tier3_victoria_metrics_gets_1_0_with_zstd";
    let Some(program) = skip::need(TIER, test, parts::victoria_metrics()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let address = ports::free().unwrap();
    let mut process = Launch::new(program)
        .arg(format!("-httpListenAddr={address}"))
        .arg(format!(
            "-storageDataPath={}",
            folder.path().join("data").display()
        ))
        .arg("-search.latencyOffset=0s")
        .start(folder.path())
        .unwrap();
    process.wait_for_port(address, STAGE_TIMEOUT).unwrap();
    let sending = Sending::to(at(address));
    let now = now_ms();
    let times: Vec<i64> = (0..5).map(|step| now - 50_000 + step * 10_000).collect();
    let forms: Vec<(WireForm, u32)> = times
        .iter()
        .map(|&time| {
            let rows = [
                ("temperature", "a", time, 20.5, 0),
                ("temperature", "b", time, -1.0, 0),
                ("work_total", "a", time, 7.0, time - 5_000),
            ];
            let outcome = sending.send(&request(&rows));
            let delivered = SendResult::Delivered {
                written: None,
                missing: 0,
            };
            assert_eq!(outcome.result, delivered);
            (outcome.form, outcome.requests)
        })
        .collect();
    let zstd = WireForm {
        protocol: Protocol::V1,
        compression: Compression::Zstd,
    };
    assert_eq!(forms, [(zstd, 2), (zstd, 1), (zstd, 1), (zstd, 1), (zstd, 1)]);
    let stale = f64::from_bits(STALE_NAN);
    sending.send(&request(&[("temperature", "b", now, stale, 0)]));
    // Makes the samples visible at once.
    let mut client = Client::plain(address, TIMEOUT).unwrap();
    client.get("/internal/force_flush").unwrap().ok().unwrap();
    wait::eventually(STAGE_TIMEOUT, "all samples", || {
        let stored = stored(address, "temperature")?;
        let expected: Vec<(i64, f64)> = times.iter().map(|&time| (time, 20.5)).collect();
        ensure!(stored.get("a") == Some(&expected), "{stored:?}");
        ensure!(
            stored["b"].iter().filter(|sample| !sample.1.is_nan()).count() == 5,
            "{stored:?}"
        );
        Ok(())
    })
    .unwrap();
    // The next full second: without a time, the query is for the last one.
    let time = format!("&time={}", now / 1000 + 1);
    let answer = api(address, "/api/v1/query", "temperature", &time).unwrap();
    let [series] = answer["data"]["result"].as_array().unwrap().as_slice() else {
        panic!("{answer}");
    };
    assert_eq!(series["metric"]["vm"], "a", "the other has ended");
}
