//! A real Prometheus answers every query of every dashboard.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    thread,
};

use anyhow::ensure;
use virtfleet_tests::{
    parts,
    prometheus::{query, start_with},
    sim::{self, Fault, Guest, Options},
    skip,
    stage::{Beat, STAGE_TIMEOUT, Stage},
    this_machine, wait,
};

use super::{expressions, read, root, sources};

const TIER: u8 = 3;
/// Largest request that the server of fixture pages reads, in bytes.
const MAX_REQUEST_BYTES: usize = 4096;

/// The page of a KubeVirt guest with declared disks, nameservers and virtio devices, which a test
/// compares with what the agent exports.
const RECORDED: &str = include_str!("../../fixtures/roots/kubevirt/expected.prom");

/// Six simulated guests, of which one is silent and paused, and one has the page [`RECORDED`], and
/// the real agent of this machine. Returns the VM with that page.
fn fleet() -> (Stage, Guest) {
    let options = Options {
        guests: 6,
        hosts: 4,
        zones: 2,
        clusters: 2,
        faults: vec![(Fault::Silent, 1)],
        page: Some(RECORDED),
        ..Options::default()
    };
    let mut stage = Stage::new(options).unwrap();
    let own = this_machine::as_guest(&stage).unwrap();
    let host = stage.plan.hosts[own.host].clone();
    stage
        .write_manifest("infra/own.yaml", &sim::vmi(&own, &host.name))
        .unwrap();
    let node = sim::user_node(&own, &host, &stage.plan.region);
    stage
        .write_manifest(&format!("clusters/{}/own.yaml", own.cluster), &node)
        .unwrap();
    stage.start_agent(&own, "").unwrap();
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(6).unwrap();
    let recorded = stage.plan.guests.iter().find(|guest| guest.page.is_some());
    let recorded = recorded.unwrap().clone();
    let silent = stage
        .plan
        .guests
        .iter()
        .find(|guest| guest.fault.is_some())
        .unwrap();
    let paused = sim::paused_vmi(silent, &stage.plan.hosts[silent.host].name, "no space left");
    stage.write_vmi(silent, &paused).unwrap();
    (stage, recorded)
}

/// Serves the page to whoever connects, until the test ends.
fn serve(page: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _read = stream.read(&mut [0; MAX_REQUEST_BYTES]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
            let _written = write!(stream, "{head}Content-Length: {}\r\n\r\n{page}", page.len());
        }
    });
    address
}

/// The shipped settings with both rule files, and a job for the fixture pages.
fn settings(fixtures: SocketAddr) -> String {
    let rules = root().join("packaging/collector/rules");
    let jobs = format!(
        "rule_files: [\"{rules}/virtfleet-recording.yaml\", \"{rules}/virtfleet.yaml\"]\nscrape_configs:\n  \
         - job_name: fixtures\n    honor_labels: true\n    static_configs: [{{ targets: [\"{fixtures}\"] }}]\n",
        rules = rules.display()
    );
    include_str!("../../../packaging/collector/prometheus.yaml").replacen("scrape_configs:\n", &jobs, 1)
}

/// The query as Grafana sends it, with the variables of one VM and its host.
fn filled(expression: &str, vm: &Guest, host: &str) -> String {
    [
        ("$__rate_interval", "1m"),
        ("$cluster", ".*"),
        ("$namespace", &vm.cluster),
        ("$vm", &vm.name),
        ("$host", host),
    ]
    .iter()
    .fold(expression.to_owned(), |text, (name, value)| {
        text.replace(name, value)
    })
}

#[test]
fn tier3_prometheus_answers_every_query_and_variable_of_the_dashboards() {
    let test = "tier3_prometheus_answers_every_query_and_variable_of_the_dashboards";
    let Some(program) = skip::need(TIER, test, parts::prometheus()).unwrap() else {
        return;
    };
    let (stage, vm) = fleet();
    let host = stage.plan.hosts[vm.host].name.clone();
    let page: String = ["kubevirt.prom", "live.prom", "mla.prom"]
        .map(|page| read(&format!("tests/fixtures/dashboards/{page}")))
        .concat();
    let page = page
        .replace("CLUSTER", &vm.cluster)
        .replace("NAMESPACE", &vm.cluster)
        .replace("NAME", &vm.name)
        .replace("NODE", &host);
    let (_prometheus, address) = start_with(&stage, program, &settings(serve(page))).unwrap();
    let sources = sources();
    let mut open: Vec<(String, String)> = expressions(&sources)
        .into_iter()
        .map(|(at, expression)| (at, filled(&expression, &vm, &host)))
        .collect();
    let total = open.len();
    for (name, variable) in &sources.variables {
        let (series, label) = variable.parts().unwrap();
        let counted = format!("count by ({label}) ({})", filled(series, &vm, &host));
        open.push((format!("variable {name}"), counted));
    }
    // Rates need two samples, and results of rules one more evaluation.
    wait::eventually(STAGE_TIMEOUT, "every query has an answer", || {
        let mut empty = Vec::new();
        for (at, expression) in &open {
            if query(address, expression, "__name__")?.is_empty() {
                empty.push((at.clone(), expression.clone()));
            }
        }
        open = empty;
        ensure!(open.is_empty(), "{} of {total} are empty: {open:#?}", open.len());
        Ok(())
    })
    .unwrap();
}
