//! What receivers get while the fleet has a guest of every hostile kind.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use anyhow::{Context as _, ensure};
use virtfleet_tests::{
    remote_write::Recorded,
    sim::{Fault, Guest, Options},
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};

use crate::mla_worker::{receiver, send_to};

/// Kinds of which no pull succeeds, so that no series of their pages is sent.
const WITHOUT_PAGE: [Fault; 14] = [
    Fault::Silent,
    Fault::Endless,
    Fault::HugeReport,
    Fault::WrongCa,
    Fault::WrongVm,
    Fault::Http500,
    Fault::Slow,
    Fault::Garbage,
    Fault::Echo,
    Fault::Sections,
    Fault::Redirect,
    Fault::Continue,
    Fault::Headers,
    Fault::Late,
];

/// What the receiver of one tenant has.
#[derive(Debug, Default)]
struct Received {
    /// VMs of which a page has arrived.
    pages: BTreeSet<String>,
    /// Values of `up` of each VM.
    ups: BTreeMap<String, Vec<f64>>,
}

impl Received {
    /// Adds a request. Each of its series is of one of the tenant's guests, with the labels and
    /// times of the collector.
    fn add(&mut self, request: &Recorded, guests: &[&Guest], began_ms: i64) {
        let message = request.v2().unwrap();
        let text = |at: u32| message.symbols[at as usize].as_str();
        for series in &message.timeseries {
            let pairs = series.labels_refs.chunks_exact(2);
            let labels: BTreeMap<&str, &str> = pairs.map(|pair| (text(pair[0]), text(pair[1]))).collect();
            let label = |name: &str| labels.get(name).copied().unwrap_or_default();
            let guest = guests.iter().find(|guest| guest.name == label("name"));
            let guest = guest.unwrap_or_else(|| panic!("no VM of the tenant: {labels:?}"));
            let tenant = [label("cluster"), label("namespace")];
            assert_eq!(tenant, [guest.cluster.as_str(); 2], "{labels:?}");
            assert_ne!(label("zone"), "forged", "{labels:?}");
            let mut samples = series.samples.iter();
            assert!(
                samples.all(|sample| sample.timestamp >= began_ms),
                "older than the test: {labels:?}"
            );
            let family = label("__name__");
            if label("job") == "node" {
                assert!(!family.starts_with("virtfleet_vm_"), "{labels:?}");
            }
            if family.starts_with("node_") {
                self.pages.insert(guest.name.clone());
            }
            if family == "up" {
                let values = series.samples.iter().map(|sample| sample.value);
                self.ups.entry(guest.name.clone()).or_default().extend(values);
            }
        }
    }
}

#[test]
fn tier2_no_kind_of_hostile_guest_writes_into_another_tenant() {
    let mut stage = Stage::new(Options {
        guests: Fault::ALL.len() + 7,
        hosts: 2,
        zones: 2,
        clusters: 2,
        faults: Fault::ALL.iter().map(|fault| (*fault, 1)).collect(),
        ..Options::default()
    })
    .unwrap();
    let receiver = receiver();
    stage.set_settings(format!(
        "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  \
         flush: {{ interval: 200ms, sync: 200ms }}\n",
        stage.path().join("queues").display()
    ));
    for cluster in stage.plan.clusters.clone() {
        let url = format!("http://{}/{cluster}", receiver.address());
        send_to(&stage, &cluster, &url, "");
    }
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let began_ms = i64::try_from(began.unwrap().as_millis()).unwrap();
    stage.start_collector(Beat::default()).unwrap();
    let guests = &stage.plan.guests;
    let (mut tenants, mut seen) = (BTreeMap::<String, Received>::new(), 0);
    wait::eventually(STAGE_TIMEOUT, "pages, and `up` of each VM", || {
        let new = receiver.recorded_from(seen);
        seen += new.len();
        for request in &new {
            let cluster = request.path.trim_start_matches('/');
            let own = guests.iter().filter(|guest| guest.cluster == cluster);
            let own: Vec<&Guest> = own.collect();
            let tenant = tenants.entry(cluster.to_owned()).or_default();
            tenant.add(request, &own, began_ms);
        }
        for guest in guests {
            let tenant = tenants.get(&guest.cluster).context("no request of a tenant")?;
            ensure!(tenant.ups.contains_key(&guest.name), "no `up` of {guest:?}");
            let has_page = matches!(guest.fault, None | Some(Fault::Forge));
            ensure!(
                !has_page || tenant.pages.contains(&guest.name),
                "no page of {guest:?}"
            );
        }
        Ok(())
    })
    .unwrap();
    let is_without_page = |guest: &&Guest| guest.fault.is_some_and(|fault| WITHOUT_PAGE.contains(&fault));
    for guest in guests.iter().filter(is_without_page) {
        let tenant = &tenants[&guest.cluster];
        assert!(!tenant.pages.contains(&guest.name), "a page of {guest:?}");
        let ups = &tenant.ups[&guest.name];
        assert!(ups.iter().all(|up| *up < 0.5), "{ups:?} of {guest:?}");
    }
}
