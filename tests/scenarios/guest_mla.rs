//! Accepted means synced: the power of a real guest that runs the collector is cut, and what its
//! streams had accepted is in the queue on its disk after the next boot.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_queue::{Queue, QueueSettings};
use virtfleet_remote_write::{Compression, MAX_MESSAGE_BYTES, decode_v2, decompress};
use virtfleet_tests::{
    bins,
    guest::{self, Guest, Start, Vm},
    pki::{self, Authority},
    process::Launch,
    sim::{self, Options, Plan},
    skip, wait,
};

/// The command that runs what takes minutes.
const SOAK: &str = "make guest-soak";
/// Power cuts.
const CUTS: u64 = 3;
/// Samples that are accepted before each cut.
const MIN_ACCEPTED: u64 = 1000;
/// Maximum time until they are, and of a program that unpacks.
const GUEST_TIMEOUT: Duration = Duration::from_mins(3);
/// Where the collector is in the guest.
const HOME: &str = "/srv/collector";
const QUEUE: &str = "/srv/collector/queues/fleet";

/// The collector with its settings: the operator's stream takes the platform's series of 30 VMs
/// each second, and its receiver is dead.
fn home(folder: &Path) -> Result<()> {
    let plan = Plan::new(&Options {
        guests: 30,
        ..Options::default()
    })?;
    sim::write_folder(&folder.join("fleet"), &plan)?;
    let authority = Authority::new("virtfleet test authority")?;
    pki::write(
        &folder.join("pki"),
        "collector",
        &authority,
        &authority.collector()?,
    )?;
    fs::copy(bins::collector()?, folder.join("virtfleet-collector"))?;
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {{ folder: {HOME}/fleet }}\n\
         server: {{ address: \"127.0.0.1:10912\" }}\nscrape:\n  interval: 1s\n  timeout: 1s\n  \
         allowCIDRs: [127.64.0.0/10]\n  tls:\n    ca: {HOME}/pki/ca.pem\n    \
         certificate: {HOME}/pki/collector.pem\n    key: {HOME}/pki/collector.key\n    \
         trustDomain: {}\nmla:\n  queue: {{ folder: {HOME}/queues }}\n  \
         flush: {{ interval: 200ms, sync: 500ms }}\n  \
         fleet: {{ remoteWrite: {{ url: \"http://127.0.0.1:9/\" }} }}\n",
        pki::TRUST_DOMAIN
    );
    fs::write(folder.join("collector.yaml"), text)?;
    Ok(())
}

/// Samples that the stream has accepted since the collector started.
fn accepted(guest: &Guest) -> Result<u64> {
    let answer = guest.run(
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/10912
        printf \"GET /api/v1/queues HTTP/1.0\\r\\n\\r\\n\" >&3; cat <&3'",
    )?;
    let body = answer.split_once("\r\n\r\n").context("no body")?.1;
    let list: Value = serde_json::from_str(body).with_context(|| answer.clone())?;
    list["items"][0]["acceptedSamples"].as_u64().context(answer)
}

/// Samples in the queue of the guest. Each record is complete, and none is there twice.
fn queued(guest: &Guest, folder: &Path) -> Result<u64> {
    let archive = folder.join("queue.tar");
    fs::write(&archive, guest.copy_out(QUEUE)?)?;
    let copy = folder.join("queue");
    fs::create_dir_all(&copy)?;
    Launch::new("tar")
        .arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(&copy)
        .text(GUEST_TIMEOUT)?;
    let settings = QueueSettings::new(1 << 30, Duration::from_hours(24));
    let (mut queue, recovery) = Queue::open(&copy, settings, SystemTime::now())?;
    ensure!(recovery.dropped.is_empty(), "{recovery:?}");
    let (mut samples, mut newest) = (0, 0);
    while let Some(record) = queue.front()? {
        let compression = Compression::from_code(record.head.kind).context("compression")?;
        let message = decode_v2(&decompress(compression, &record.body, MAX_MESSAGE_BYTES)?)?;
        let series = message.timeseries.iter();
        let count: usize = series.map(|series| series.samples.len()).sum();
        ensure!(
            count as u64 == u64::from(record.head.samples),
            "{:?}",
            record.head
        );
        ensure!(record.head.oldest_ms > newest, "{newest}, then {:?}", record.head);
        newest = record.head.newest_ms;
        samples += count as u64;
        queue.acknowledge(record.id)?;
    }
    drop(queue);
    fs::remove_dir_all(&copy)?;
    Ok(samples)
}

#[test]
fn tier4_what_a_stream_accepted_survives_power_cuts() {
    let test = "tier4_what_a_stream_accepted_survives_power_cuts";
    if skip::deferred(4, test, SOAK) {
        return;
    }
    guest::play(test, |scene| {
        let folder = scene.path().join("home");
        fs::create_dir_all(&folder)?;
        home(&folder)?;
        let guest = scene.start(&Vm::new("collector"), Start::Booted)?;
        guest.copy_in(&folder, HOME)?;
        guest.run("sync")?;
        let mut before = 0;
        for cut in 0..CUTS {
            guest.run(&format!(
                "systemd-run --quiet --unit collector {HOME}/virtfleet-collector serve --config {HOME}/collector.yaml"
            ))?;
            let accepted = wait::eventually(GUEST_TIMEOUT, "samples are accepted", || {
                let accepted = accepted(&guest)?;
                ensure!(accepted >= MIN_ACCEPTED, "{accepted}");
                Ok(accepted)
            })?;
            guest.cut_power();
            guest.boot_to_agent()?;
            let found = queued(&guest, scene.path())?;
            println!("cut {cut}: {before} queued before, {accepted} accepted, {found} found");
            ensure!(
                found >= before + accepted,
                "cut {cut}: {found}, {before} and {accepted}"
            );
            before = found;
        }
        Ok(())
    });
}
