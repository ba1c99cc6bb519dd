//! A real Prometheus finds the agents through `/sd`, scrapes them over TLS, and joins what they say
//! with where they stand.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use anyhow::ensure;
use serde_json::Value;
use virtfleet_tests::{
    parts,
    process::Launch,
    prometheus::{query, start as prometheus, start_with},
    scrape::Client,
    sim::{self, Fault, Options},
    skip,
    stage::{Beat, STAGE_TIMEOUT, Stage},
    this_machine, wait,
};

const TIER: u8 = 3;

fn stage_with_this_machine() -> Stage {
    let options = Options {
        guests: 6,
        hosts: 4,
        zones: 2,
        clusters: 2,
        ..Options::default()
    };
    let mut stage = Stage::new(options).unwrap();
    let own = this_machine::as_guest(&stage).unwrap();
    stage
        .write_manifest(
            "infra/this-machine.yaml",
            &sim::vmi(&own, &stage.plan.hosts[own.host].name),
        )
        .unwrap();
    let node = sim::user_node(&own, &stage.plan.hosts[own.host], &stage.plan.region);
    stage
        .write_manifest(&format!("clusters/{}/this-machine.yaml", own.cluster), &node)
        .unwrap();
    stage.start_agent(&own, "").unwrap();
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(7).unwrap();
    stage
}

/// The same series with a label `vm` of the form `namespace/name`.
fn by_vm(series: &str) -> String {
    format!("label_join({series}, \"vm\", \"/\", \"namespace\", \"name\")")
}

#[test]
fn tier3_prometheus_finds_every_agent_and_joins_memory_with_zones() {
    let test = "tier3_prometheus_finds_every_agent_and_joins_memory_with_zones";
    let Some(program) = skip::need(TIER, test, parts::prometheus()).unwrap() else {
        return;
    };
    let stage = stage_with_this_machine();
    let (_prometheus, address) = prometheus(&stage, program).unwrap();
    wait::eventually(STAGE_TIMEOUT, "all seven agents are scraped", || {
        // By `namespace/name`: two tenants have a worker-0 each.
        let up = query(address, &by_vm("up{job=\"node\"}"), "vm")?;
        ensure!(up.len() == 7 && up.values().all(|value| *value > 0.0), "{up:?}");
        Ok(())
    })
    .unwrap();
    let by_zone = "sum by (zone) (node_memory_MemAvailable_bytes * on (cluster, namespace, name) group_left (zone) \
                   virtfleet_vm_placement_info)";
    // Two queries, between which an agent may be scraped too late once.
    wait::eventually(STAGE_TIMEOUT, "memory by zone", || {
        let zones = query(address, by_zone, "zone")?;
        ensure!(zones.len() == 2, "{zones:?}");
        let each = query(address, &by_vm("node_memory_MemAvailable_bytes"), "vm")?;
        ensure!(each.len() == 7, "{each:?}");
        let (joined, all): (f64, f64) = (zones.values().sum(), each.values().sum());
        ensure!(
            joined > 0.0 && (joined - all).abs() / all < 0.2,
            "nothing is lost by the join: {joined} of {all}"
        );
        Ok(())
    })
    .unwrap();
    let silent =
        "virtfleet_vm_up == 0 and on (cluster, namespace, name) virtfleet_vm_state{state=\"running\"}";
    // A busy machine answers one pull late.
    wait::eventually(STAGE_TIMEOUT, "no agent is silent", || {
        let found = query(address, silent, "name")?;
        ensure!(found.is_empty(), "{found:?}");
        Ok(())
    })
    .unwrap();
    let targets = Client::plain(address, STAGE_TIMEOUT)
        .unwrap()
        .get("/api/v1/targets")
        .unwrap()
        .json()
        .unwrap();
    let own = this_machine::as_guest(&stage).unwrap();
    let target = targets["data"]["activeTargets"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["labels"]["name"] == *own.name);
    let labels: &Value = &target.unwrap()["labels"];
    assert_eq!(
        (&labels["job"], &labels["instance"]),
        (&"node".into(), &own.name.into()),
        "as dashboards have it"
    );
}

/// Through the collector, and directly: a guest that forges the platform's series, or sends
/// Prometheus to another page, gets nothing stored but its own page under its own labels.
#[test]
fn tier3_prometheus_stores_nothing_that_a_guest_forges() {
    let test = "tier3_prometheus_stores_nothing_that_a_guest_forges";
    let Some(program) = skip::need(TIER, test, parts::prometheus()).unwrap() else {
        return;
    };
    let options = Options {
        guests: 4,
        hosts: 2,
        zones: 1,
        clusters: 1,
        faults: vec![(Fault::Forge, 1), (Fault::Redirect, 1)],
        ..Options::default()
    };
    let mut stage = Stage::new(options).unwrap();
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(3).unwrap();
    let faulty = |fault| stage.plan.guests.iter().find(|guest| guest.fault == Some(fault));
    let (forger, liar) = (faulty(Fault::Forge).unwrap(), faulty(Fault::Redirect).unwrap());
    let shipped = include_str!("../../packaging/collector/prometheus.yaml");
    let jobs = shipped.split_once("  - job_name: virtfleet-fleet").unwrap().1;
    let direct = include_str!("../../packaging/collector/prometheus-direct.yaml");
    let direct = format!("{direct}  - job_name: virtfleet-fleet{jobs}");
    for settings in [shipped, &direct] {
        let (_prometheus, address) = start_with(&stage, program.clone(), settings).unwrap();
        let page = format!("node_load1{{job=\"node\",name=\"{}\"}}", forger.name);
        wait::eventually(
            STAGE_TIMEOUT,
            "the forger's own page and the fleet's are stored",
            || {
                let own = query(address, &page, "name")?;
                let fleet = query(address, "virtfleet_vm_up{job=\"virtfleet-fleet\"}", "name")?;
                let up = query(address, "up{job=\"node\"}", "name")?;
                ensure!(own.len() == 1 && fleet.len() == 4, "{own:?} {fleet:?}");
                // Listed, because its certificate is right; and never stored.
                ensure!(up.get(&liar.name) == Some(&0.0) && up.len() == 4, "{up:?}");
                Ok(())
            },
        )
        .unwrap();
        let of_redirected = format!(
            "count by (name) ({{job=\"node\",name=\"{}\",__name__!~\"up|scrape_.*\"}})",
            liar.name
        );
        assert!(query(address, &of_redirected, "name").unwrap().is_empty());
        let elsewhere = query(
            address,
            "virtfleet_vm_placement_info{job!=\"virtfleet-fleet\"}",
            "name",
        )
        .unwrap();
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
        // What it dates back counts as of now, so nothing of the past is changed.
        wait::eventually(STAGE_TIMEOUT, "the forged sample counts as of now", || {
            let dated = query(address, "timestamp(virtfleet_guest_forged) > 1750000000", "name")?;
            ensure!(dated.len() == 1, "{dated:?}");
            Ok(())
        })
        .unwrap();
        let zones = query(address, "virtfleet_vm_placement_info{zone=\"forged\"}", "name").unwrap();
        assert!(zones.is_empty(), "{zones:?}");
    }
    // Through the collector neither leaves the guest at all.
    let page = format!("/vm/{}/{}/metrics", forger.cluster, forger.name);
    let through = wait::eventually(STAGE_TIMEOUT, "its page is there", || stage.text(&page)).unwrap();
    assert!(through.contains("\nvirtfleet_guest_forged 1\n") && !through.contains("placement_info"));
    let page = format!("/vm/{}/{}/metrics", liar.cluster, liar.name);
    wait::eventually(STAGE_TIMEOUT, "its page is refused", || {
        let status = Client::plain(stage.api, STAGE_TIMEOUT)?.get(&page)?.status;
        ensure!(status.as_u16() == 502, "{status}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn tier3_promtool_finds_no_fault_in_any_page() {
    let test = "tier3_promtool_finds_no_fault_in_any_page";
    let Some(promtool) = skip::need(TIER, test, parts::promtool()).unwrap() else {
        return;
    };
    let stage = stage_with_this_machine();
    let client = stage
        .authority
        .client_config(&stage.authority.collector().unwrap())
        .unwrap();
    let mut agent = Client::tls(stage.own_address(), client, STAGE_TIMEOUT).unwrap();
    let pages = [
        (
            "agent",
            agent
                .get("/metrics")
                .unwrap()
                .ok()
                .unwrap()
                .text()
                .unwrap()
                .to_owned(),
        ),
        ("collector", stage.text("/metrics").unwrap()),
        ("fleet", stage.text("/metrics/fleet").unwrap()),
    ];
    for (name, page) in pages {
        let output = Launch::new(&promtool)
            .args(["check", "metrics"])
            .stdin(page)
            .output(STAGE_TIMEOUT)
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        let faults: Vec<_> = said.lines().filter(|line| !inherited(line)).collect();
        assert!(faults.is_empty(), "{name}: {faults:#?}");
    }
}

/// The pieces of promtool's advice that node_exporter's own names do not follow; dashboards need
/// them as they are.
fn inherited(line: &str) -> bool {
    let kernels_words = ["node_memory_", "node_netstat_"]
        .iter()
        .any(|start| line.starts_with(start));
    line.trim().is_empty()
        || (kernels_words && line.ends_with("not 'camelCase'"))
        || (line.starts_with("node_entropy_") && line.ends_with("instead of \"bits\""))
}
