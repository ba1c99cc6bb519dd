//! The collector sends to receivers that record: which addresses it dials, and how streams end.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use virtfleet_tests::{
    ports,
    remote_write::{Recorded, Recorder, Reply},
    sim::Options,
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};

fn samples(request: &Recorded) -> u64 {
    let message = request.v2().unwrap();
    let series = message.timeseries.iter();
    series.map(|series| series.samples.len() as u64).sum()
}

/// A receiver of 2.0 that accepts everything.
pub(crate) fn receiver() -> Recorder {
    Recorder::start(|_, request| Some(Reply::status(204).written(samples(request)))).unwrap()
}

fn stage(clusters: usize) -> Stage {
    Stage::new(Options {
        guests: clusters,
        hosts: 1,
        zones: 1,
        clusters,
        ..Options::default()
    })
    .unwrap()
}

/// Sends the samples of a user cluster to this URL, with further lines of `spec.mla`.
pub(crate) fn send_to(stage: &Stage, cluster: &str, url: &str, more: &str) {
    let name = format!("clusters/{cluster}/cluster.yaml");
    let text = fs::read_to_string(stage.manifests().join(&name)).unwrap();
    let spec = text.split("\n  mla:").next().unwrap_or_default().trim_end();
    let remote_write = format!("remoteWrite: {{ url: \"{url}\", insecure: true, timeout: 2s }}");
    stage
        .write_manifest(&name, &format!("{spec}\n  mla:\n    {remote_write}\n{more}"))
        .unwrap();
}

/// A stream in `/api/v1/queues`, when it satisfies `holds`.
pub(crate) fn until_stream(
    stage: &Stage,
    name: &str,
    what: &str,
    mut holds: impl FnMut(&Value) -> bool,
) -> Value {
    wait::eventually(STAGE_TIMEOUT, &format!("{name}: {what}"), || {
        let list = stage.json("/api/v1/queues")?;
        let items = list["items"].as_array().context("no items")?;
        let stream = items.iter().find(|item| item["stream"] == name);
        let stream = stream.with_context(|| format!("no {name} in {list}"))?;
        ensure!(holds(stream), "{stream}");
        Ok(stream.clone())
    })
    .unwrap()
}

#[test]
fn tier2_no_tenant_lets_the_collector_dial_special_addresses() {
    let mut stage = stage(3);
    let receiver = receiver();
    let queues = stage.path().join("queues");
    stage.set_settings(format!(
        "mla:\n  queue: {{ folder: {} }}\n  flush: {{ interval: 200ms, sync: 200ms }}\n  \
         fleet: {{ remoteWrite: {{ url: \"http://{}/fleet\" }} }}\n",
        queues.display(),
        receiver.address()
    ));
    let port = receiver.address().port();
    let clusters = stage.plan.clusters.clone();
    let refused = [
        (format!("http://127.0.0.1:{port}/address"), "loopback"),
        (format!("http://localhost:{port}/name"), "loopback"),
        ("http://169.254.169.254/latest/api/token".to_owned(), "link-local"),
    ];
    for (cluster, (url, _)) in clusters.iter().zip(&refused) {
        send_to(&stage, cluster, url, "");
    }
    stage.start_collector(Beat::default()).unwrap();
    for (cluster, (_, range)) in clusters.iter().zip(&refused) {
        let stream = format!("cluster/{cluster}");
        let stream = until_stream(&stage, &stream, "is refused", |stream| {
            stream["state"] == "retrying" && stream["samples"].as_u64() > Some(0)
        });
        let message = stream["lastError"]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains(range) && message.contains("mla.allowCIDRs"),
            "{stream}"
        );
    }
    // The operator's stream may: the operator names its receiver.
    until_stream(&stage, "fleet", "is sent", |stream| {
        stream["sentSamples"].as_u64() > Some(0)
    });
    let paths = receiver.recorded().into_iter().map(|request| request.path);
    assert!(
        paths.clone().all(|path| path == "/fleet"),
        "{:?}",
        paths.collect::<Vec<_>>()
    );

    // With an entry for loopback, what was queued is sent.
    let collector = stage.take_collector().unwrap();
    assert!(collector.terminate(STAGE_TIMEOUT).unwrap().success());
    stage.set_settings(format!(
        "mla:\n  allowCIDRs: [127.0.0.0/8, \"::1/128\"]\n  queue: {{ folder: {} }}\n",
        queues.display()
    ));
    stage.start_collector(Beat::default()).unwrap();
    wait::eventually(STAGE_TIMEOUT, "both tenants' samples arrive", || {
        for path in ["/address", "/name"] {
            let has = receiver.recorded().iter().any(|request| request.path == path);
            ensure!(has, "nothing on {path}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn tier2_a_collector_that_ends_sends_what_it_has() {
    let mut stage = stage(2);
    let receiver = receiver();
    // Nothing listens there.
    let dead = ports::free().unwrap();
    let queues = stage.path().join("queues");
    stage.set_settings(format!(
        "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  flush: {{ interval: 1m, sync: 1m }}\n",
        queues.display()
    ));
    let clusters = stage.plan.clusters.clone();
    send_to(
        &stage,
        &clusters[0],
        &format!("http://{}/write", receiver.address()),
        "",
    );
    send_to(&stage, &clusters[1], &format!("http://{dead}/write"), "");
    stage.start_collector(Beat::default()).unwrap();
    let streams = clusters.iter().map(|cluster| format!("cluster/{cluster}"));
    let scraped = streams.map(|stream| {
        let stream = until_stream(&stage, &stream, "has pages", |stream| {
            stream["scrapedSamples"].as_u64() > Some(1000)
        });
        stream["scrapedSamples"].as_u64().unwrap()
    });
    let scraped: Vec<_> = scraped.collect();
    assert!(receiver.recorded().is_empty(), "samples wait for a full request");
    let collector = stage.take_collector().unwrap();
    let began = std::time::Instant::now();
    assert!(collector.terminate(STAGE_TIMEOUT).unwrap().success());
    let took = began.elapsed();
    assert!(took < wait::PROMPT, "{took:?}");
    let sent: u64 = receiver.recorded().iter().map(samples).sum();
    assert!(sent >= scraped[0], "{sent} of {scraped:?}");

    // The queue of the dead receiver's stream has the rest, and the next process sends it.
    send_to(
        &stage,
        &clusters[1],
        &format!("http://{}/late", receiver.address()),
        "",
    );
    stage.start_collector(Beat::default()).unwrap();
    wait::eventually(STAGE_TIMEOUT, "the queue is sent", || {
        let all = receiver.recorded();
        let late = all.iter().filter(|request| request.path == "/late");
        let late: u64 = late.map(samples).sum();
        ensure!(late >= scraped[1], "{late} of {scraped:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn tier2_a_full_queue_drops_the_oldest_samples_and_counts_exactly_these() {
    let mut stage = Stage::new(Options {
        guests: 2,
        hosts: 1,
        zones: 1,
        clusters: 1,
        // Large pages fill the smallest queue in seconds.
        pods: 200,
        ..Options::default()
    })
    .unwrap();
    let receiver = receiver();
    let dead = ports::free().unwrap();
    stage.set_settings(format!(
        "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  \
         flush: {{ interval: 100ms, sync: 200ms }}\n",
        stage.path().join("queues").display()
    ));
    let cluster = stage.plan.clusters[0].clone();
    let limits = "    limits: { queueBytes: 1048576 }\n";
    send_to(&stage, &cluster, &format!("http://{dead}/write"), limits);
    let interval = std::time::Duration::from_millis(250);
    stage
        .start_collector(Beat {
            interval,
            timeout: interval,
        })
        .unwrap();
    let stream = format!("cluster/{cluster}");
    let dropped = |stream: &Value| stream["dropped"]["queueFull"].as_u64().unwrap_or_default();
    until_stream(&stage, &stream, "drops samples", |stream| dropped(stream) > 5000);
    // The guests go, so that the counters become final; then the receiver answers.
    for guest in stage.plan.guests.clone() {
        fs::remove_file(stage.manifest(&guest)).unwrap();
    }
    let gone = || {
        let list = stage.json("/api/v1/vms").unwrap();
        list["items"].as_array().is_some_and(Vec::is_empty)
    };
    wait::until(STAGE_TIMEOUT, "the VMs are gone", gone).unwrap();
    send_to(
        &stage,
        &cluster,
        &format!("http://{}/write", receiver.address()),
        limits,
    );
    let mut last = None;
    let settled = until_stream(&stage, &stream, "is sent", |stream| {
        let scraped = stream["scrapedSamples"].as_u64();
        let is_settled = stream["samples"] == 0 && last.replace(scraped) == Some(scraped);
        // The status is published each second.
        wait::measure(std::time::Duration::from_millis(1100), || Ok(())).unwrap();
        is_settled
    });
    let requests = receiver.recorded();
    let sent: u64 = requests.iter().map(samples).sum();
    let scraped = settled["scrapedSamples"].as_u64().unwrap();
    assert_eq!(settled["sentSamples"].as_u64(), Some(sent), "{settled}");
    assert_eq!(scraped - sent, dropped(&settled), "{settled}");
    // What was dropped is the oldest: nothing is missing between two requests.
    let times: BTreeSet<i64> = requests
        .iter()
        .flat_map(|request| request.v2().unwrap().timeseries)
        .flat_map(|series| series.samples)
        .map(|sample| sample.timestamp)
        .collect();
    let gaps = times.iter().zip(times.iter().skip(1));
    let longest = gaps.map(|(one, next)| next - one).max().unwrap_or_default();
    assert!(longest < 4000, "{longest} ms between two pages");
}

#[test]
fn tier2_a_vm_over_a_limit_of_series_costs_itself_alone() {
    let mut stage = Stage::new(Options {
        guests: 2,
        hosts: 1,
        zones: 1,
        clusters: 1,
        // The second one has the labels of the first one.
        page: Some("small 1\nsmall 2\n"),
        ..Options::default()
    })
    .unwrap();
    let receiver = receiver();
    stage.set_settings(format!(
        "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  \
         flush: {{ interval: 200ms, sync: 200ms }}\n",
        stage.path().join("queues").display()
    ));
    let cluster = stage.plan.clusters[0].clone();
    let url = format!("http://{}/write", receiver.address());
    send_to(&stage, &cluster, &url, "    limits: { seriesPerVm: 10 }\n");
    stage.start_collector(Beat::default()).unwrap();
    let until_errors = |what: &str, expected: [Option<&str>; 2]| {
        let guests = stage.plan.guests.iter().map(|guest| guest.name.clone());
        let expected: BTreeMap<_, _> = guests
            .zip(expected.map(|reason| reason.map(str::to_owned)))
            .collect();
        wait::eventually(STAGE_TIMEOUT, what, || {
            let list = stage.json("/api/v1/targets")?;
            let items = list["items"].as_array().context("no items")?;
            let in_stream = items.iter().filter(|item| item["inStream"] == true);
            let found = in_stream.map(|item| {
                let reason = item["error"]["reason"].as_str().map(str::to_owned);
                (item["name"].as_str().unwrap_or_default().to_owned(), reason)
            });
            let found: BTreeMap<_, _> = found.collect();
            ensure!(found == expected, "{list:#}");
            Ok(())
        })
        .unwrap();
    };
    until_errors("the large page is refused", [None, Some("overLimit")]);
    let stream = format!("cluster/{cluster}");
    until_stream(&stage, &stream, "counts what is dropped", |stream| {
        stream["dropped"]["limit"].as_u64() > Some(0) && stream["sentSamples"].as_u64() > Some(0)
    });
    wait::eventually(STAGE_TIMEOUT, "findings name each VM and the reason", || {
        let list = stage.json("/api/v1/findings")?;
        let text = list.to_string();
        for guest in &stage.plan.guests {
            ensure!(text.contains(&guest.name), "{list:#}");
        }
        ensure!(
            text.contains("more than 10 series") && text.contains("SamplesNotSent"),
            "{list:#}"
        );
        // The operator has lost nothing.
        ensure!(!text.contains("mla-samples-dropped"), "{list:#}");
        Ok(())
    })
    .unwrap();
    // A higher limit is used at once.
    send_to(&stage, &cluster, &url, "    limits: { seriesPerVm: 10000 }\n");
    until_errors("both pages are sent", [None, None]);
}

/// Writes the settings file of the running collector anew, with this section.
fn rewrite_settings(stage: &mut Stage, mla: &str) {
    stage.set_settings(mla.to_owned());
    let file = stage.path().join("collector.yaml");
    fs::write(file, stage.collector_config(Beat::default())).unwrap();
}

#[test]
fn tier2_the_section_mla_follows_the_settings_file() {
    let mut stage = stage(1);
    let receiver = receiver();
    let queues = stage.path().join("queues");
    let queue = format!(
        "  queue: {{ folder: {} }}\n  flush: {{ interval: 200ms, sync: 200ms }}\n",
        queues.display()
    );
    let cluster = stage.plan.clusters[0].clone();
    let stream = format!("cluster/{cluster}");
    send_to(
        &stage,
        &cluster,
        &format!("http://{}/write", receiver.address()),
        "",
    );
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(1).unwrap();
    let streams = |stage: &Stage| -> anyhow::Result<usize> {
        let list = stage.json("/api/v1/queues")?;
        Ok(list["items"].as_array().context("no items")?.len())
    };
    assert_eq!(streams(&stage).unwrap(), 0, "MLA is off");

    rewrite_settings(&mut stage, &format!("mla:\n{queue}"));
    let refused = until_stream(&stage, &stream, "is refused by mla.allowCIDRs", |stream| {
        stream["state"] == "retrying" && stream["samples"].as_u64() > Some(0)
    });
    assert!(receiver.recorded().is_empty(), "{refused}");
    let open = format!("mla:\n  allowCIDRs: [127.0.0.0/8]\n{queue}");
    rewrite_settings(&mut stage, &open);
    until_stream(&stage, &stream, "is sent, with what was queued", |stream| {
        stream["sentSamples"].as_u64() >= refused["samples"].as_u64()
    });

    // What is wrong changes nothing, and is named.
    let bad = open.replace("folder:", "maxBytes: 5, folder:");
    rewrite_settings(&mut stage, &bad);
    wait::eventually(STAGE_TIMEOUT, "a finding names the key", || {
        let list = stage.json("/api/v1/findings")?;
        ensure!(list.to_string().contains("mla.queue.maxBytes: 5"), "{list:#}");
        Ok(())
    })
    .unwrap();
    let before = receiver.recorded().len();
    wait::eventually(STAGE_TIMEOUT, "samples are still sent", || {
        let now = receiver.recorded().len();
        ensure!(now > before, "{now} requests");
        Ok(())
    })
    .unwrap();

    // The operator's stream is added.
    let fleet = format!(
        "{open}  fleet: {{ remoteWrite: {{ url: \"http://{}/fleet\" }} }}\n",
        receiver.address()
    );
    rewrite_settings(&mut stage, &fleet);
    until_stream(&stage, "fleet", "is sent", |stream| {
        stream["sentSamples"].as_u64() > Some(0)
    });
    rewrite_settings(&mut stage, "");
    wait::eventually(STAGE_TIMEOUT, "no stream is left", || {
        let left = streams(&stage)?;
        ensure!(left == 0, "{left} streams");
        Ok(())
    })
    .unwrap();
    assert!(
        queues.join(format!("cluster-{cluster}")).is_dir(),
        "the queue stays"
    );
    let collector = stage.take_collector().unwrap();
    assert!(collector.terminate(STAGE_TIMEOUT).unwrap().success());
}

/// Times of the series `up` in the requests to a path, in order.
fn pull_times(receiver: &Recorder, path: &str) -> Vec<i64> {
    let mut times = BTreeSet::new();
    for request in receiver.recorded().iter().filter(|request| request.path == path) {
        let message = request.v2().unwrap();
        let text = |at: u32| message.symbols[at as usize].as_str();
        let up = message.timeseries.iter().filter(|series| {
            let mut labels = series.labels_refs.chunks(2);
            labels.any(|label| text(label[0]) == "__name__" && text(label[1]) == "up")
        });
        times.extend(up.flat_map(|series| series.samples.iter().map(|sample| sample.timestamp)));
    }
    times.into_iter().collect()
}

#[test]
fn tier2_each_stream_has_its_interval() {
    let mut stage = stage(1);
    let receiver = receiver();
    stage.set_settings(format!(
        "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  flush: {{ interval: 200ms, sync: 200ms }}\n  \
         fleet: {{ guests: true, remoteWrite: {{ url: \"http://{}/fleet\" }} }}\n",
        stage.path().join("queues").display(),
        receiver.address()
    ));
    let cluster = stage.plan.clusters[0].clone();
    let url = format!("http://{}/tenant", receiver.address());
    send_to(&stage, &cluster, &url, "    interval: 2s\n");
    let interval = std::time::Duration::from_millis(250);
    stage
        .start_collector(Beat {
            interval,
            timeout: interval,
        })
        .unwrap();
    let gaps = |path: &str| -> Vec<i64> {
        let times = pull_times(&receiver, path);
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    };
    // Two seconds, less half of the interval of pulls.
    let shortest = 1875;
    wait::eventually(STAGE_TIMEOUT, "both streams have pages", || {
        let (tenant, fleet) = (gaps("/tenant"), gaps("/fleet"));
        let is_thinner = fleet.iter().any(|gap| *gap < shortest);
        ensure!(tenant.len() >= 3 && is_thinner, "{tenant:?} {fleet:?}");
        Ok(())
    })
    .unwrap();
    let tenant = gaps("/tenant");
    assert!(tenant.iter().all(|gap| *gap >= shortest), "{tenant:?}");
}
