//! The chain of KKP's monitoring: the collector, with the packaged example for KKP, sends the
//! samples of each user cluster to its MLA gateway, which passes them on to Cortex in the name of
//! the user cluster.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    install::shipped,
    parts,
    remote_write::{Cortex, MlaGateway},
    scrape::Client,
    sim::{Guest, Options},
    skip,
    stage::{Beat, STAGE_TIMEOUT, Stage},
    wait,
};
use virtfleet_wire::exposition::{Line, parse_line};

use crate::mla_worker::until_stream;

const TIER: u8 = 3;
const PUSH: &str = "/api/v1/push";
/// User clusters with a gateway of their own.
const TENANTS: [&str; 2] = ["cluster-a", "cluster-b"];
const MEMORY: &str = "node_memory_MemTotal_bytes";

/// Page of the first guest, `cluster-a/worker-0`: values that are easily rounded on the way, and
/// labels of other VMs.
const PAGE: &str = r#"# TYPE node_memory_MemTotal_bytes gauge
node_memory_MemTotal_bytes 8589934592
# TYPE node_exact gauge
node_exact{case="small"} 5e-324
node_exact{case="large"} 1.7976931348623157e+308
node_exact{case="third"} 0.3333333333333333
node_exact{case="negative"} -15.5
node_exact{case="infinite"} +Inf
node_exact{case="no number"} NaN
# TYPE node_forged_total counter
node_forged_total{cluster="cluster-b",job="other",node_name="worker-9"} 7
"#;

/// Sends the samples of a user cluster to this path of a gateway, as the packaged example does. The
/// Secret is like KKP's `monitoring-agent-certificates`, or has only the gateway's authority.
fn send(stage: &Stage, cluster: &str, gateway: &MlaGateway, path: &str, with_certificate: bool) {
    let examples = shipped("examples/usercluster-mla.yaml").unwrap();
    let mut examples = examples.into_iter();
    let mut object = examples
        .find(|one| one["metadata"]["name"] == "abcdefghij")
        .unwrap();
    object["metadata"]["name"] = cluster.into();
    let secret = format!("gateway-{cluster}");
    let mut spec = json!({ "vmis": { "namespace": cluster }, "mla": object["spec"]["mla"] });
    let mla = &mut spec["mla"];
    mla["remoteWrite"]["url"] = format!("https://{}{path}", gateway.address).into();
    mla["remoteWrite"]["tls"]["secret"]["name"] = secret.as_str().into();
    mla["remoteWrite"]["tls"]["serverName"] = gateway.host.as_str().into();
    mla["placementLabels"][1]["key"] = "infra.example.com/rack".into();
    object["spec"] = spec;

    let mut data = json!({ "ca.crt": gateway.authority.pem() });
    if with_certificate {
        let identity = gateway.authority.collector().unwrap();
        data["client.crt"] = identity.certificate_pem().into();
        data["client.key"] = identity.key_pem().into();
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "virtfleet-mla", "name": secret },
        "stringData": data,
    });
    for (name, manifest) in [("secrets", secret), ("cluster", object)] {
        // YAML includes JSON.
        let file = format!("clusters/{cluster}/{name}.yaml");
        stage.write_manifest(&file, &manifest.to_string()).unwrap();
    }
}

/// The value of a series of an instant query.
fn value(series: &Value) -> Result<f64> {
    let text = series["value"][1].as_str().context("no value")?;
    text.parse().with_context(|| format!("value {text}"))
}

/// The one series that a query of a tenant finds.
fn one(cortex: &Cortex, tenant: &str, promql: &str) -> Result<Value> {
    let mut found = cortex.query(tenant, promql)?;
    ensure!(found.len() == 1, "{tenant}: {promql}: {found:?}");
    Ok(found.remove(0))
}

/// Checks one series that the guest's page has, under the labels that KKP's dashboards select, and
/// the placement.
fn check_guest(stage: &Stage, cortex: &Cortex, guest: &Guest) -> Result<()> {
    let Guest { cluster, name, .. } = guest;
    let page = stage.text(&format!("/vm/{cluster}/{name}/metrics"))?;
    let served = page.lines().find_map(|line| match parse_line(line) {
        Ok(Line::Sample(sample)) if sample.name == MEMORY => Some(sample.value),
        _ => None,
    });
    let served = served.with_context(|| format!("no {MEMORY} on the page of {cluster}/{name}"))?;
    let promql = format!("{MEMORY}{{job=\"node-exporter\",node_name=\"{name}\"}}");
    let series = one(cortex, cluster, &promql)?;
    ensure!(
        value(&series)?.to_bits() == served.to_bits(),
        "{served}: {series}"
    );
    let host = &stage.plan.hosts[guest.host];
    let labels = json!({
        "__name__": MEMORY, "cluster": cluster, "namespace": cluster, "name": name, "instance": name,
        "job": "node-exporter", "node_name": name, "zone": host.zone, "rack": host.rack,
    });
    ensure!(series["metric"] == labels, "{labels}: {series}");
    let promql = format!("virtfleet_vm_placement_info{{name=\"{name}\"}}");
    let placement = one(cortex, cluster, &promql)?;
    ensure!(placement["metric"]["zone"] == host.zone, "{placement}");
    Ok(())
}

/// Checks every value of [`PAGE`], and what became of its labels of other VMs.
fn check_page(cortex: &Cortex) -> Result<()> {
    for line in PAGE.lines() {
        let Line::Sample(sample) = parse_line(line)? else {
            continue;
        };
        let own: Vec<String> = sample
            .labels
            .filter_map(|label| label.ok().filter(|(name, _)| *name == "case"))
            .map(|(name, value)| format!(",{name}=\"{value}\""))
            .collect();
        let promql = format!("{}{{node_name=\"worker-0\"{}}}", sample.name, own.concat());
        let stored = value(&one(cortex, "cluster-a", &promql)?)?;
        let is_equal = stored.to_bits() == sample.value.to_bits() || stored.is_nan() && sample.value.is_nan();
        ensure!(is_equal, "{line}: {stored}");
    }
    let forged = one(cortex, "cluster-a", "node_forged_total")?;
    for (name, value) in [
        ("cluster", "cluster-a"),
        ("exported_cluster", "cluster-b"),
        ("job", "node-exporter"),
        ("exported_job", "other"),
        ("node_name", "worker-0"),
    ] {
        ensure!(forged["metric"][name] == value, "{name}: {forged}");
    }
    Ok(())
}

/// Waits until the pages of all guests of both tenants are in Cortex.
fn until_stored(stage: &Stage, cortex: &Cortex) {
    let guests = stage.plan.guests.iter();
    let guests: Vec<_> = guests
        .filter(|guest| TENANTS.contains(&guest.cluster.as_str()))
        .collect();
    assert_eq!(guests.len(), 4);
    wait::eventually(STAGE_TIMEOUT, "the pages of both tenants in Cortex", || {
        guests
            .iter()
            .try_for_each(|guest| check_guest(stage, cortex, guest))?;
        check_page(cortex)
    })
    .unwrap();
}

/// Waits until the samples of both tenants are accepted with this version of the protocol, and
/// checks that none was refused.
fn until_sent_with(stage: &Stage, version: &str) {
    for tenant in TENANTS {
        let stream = format!("cluster/{tenant}");
        let queue = until_stream(stage, &stream, &format!("is sent with {version}"), |queue| {
            queue["protocol"] == version && queue["state"] == "live"
        });
        assert_eq!(queue["compression"], "snappy", "{queue:#}");
        let refused = queue["refused"].as_object().unwrap();
        assert!(refused.values().all(|samples| *samples == 0), "{queue:#}");
    }
}

/// No tenant has a series of another, and those whose requests are refused have none.
fn check_isolation(cortex: &Cortex) {
    for tenant in TENANTS {
        let promql = format!("count({{__name__=~\".+\",cluster!=\"{tenant}\"}})");
        let others = cortex.query(tenant, &promql).unwrap();
        assert!(others.is_empty(), "{tenant}: {others:?}");
    }
    for tenant in ["cluster-c", "cluster-d"] {
        let any = cortex.query(tenant, "count({__name__=~\".+\"})").unwrap();
        assert!(any.is_empty(), "{tenant}: {any:?}");
    }
    let mut without_tenant = Client::plain(cortex.address, STAGE_TIMEOUT).unwrap();
    let answer = without_tenant.get("/prometheus/api/v1/query?query=up").unwrap();
    assert_eq!(answer.status, 401);
}

/// The collector names what the gateway refuses: in the stream, a finding, and virtfleetctl.
fn check_refused(stage: &Stage) {
    for (cluster, status, reason, words) in [
        (
            "cluster-c",
            400,
            "badRequest",
            "No required SSL certificate was sent",
        ),
        ("cluster-d", 404, "notFound", "Not Found"),
    ] {
        let stream = format!("cluster/{cluster}");
        let queue = until_stream(stage, &stream, "is refused", |queue| {
            queue["state"] == "refused" && queue["refused"][reason].as_u64() > Some(0)
        });
        assert_eq!(queue["lastError"]["status"], status, "{queue:#}");
        let message = queue["lastError"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{queue:#}");
        wait::eventually(STAGE_TIMEOUT, "a finding about the refusal", || {
            let list = stage.json("/api/v1/findings")?;
            let mut items = list["items"].as_array().context("no items")?.iter();
            let found =
                items.any(|one| one["id"] == "mla-endpoint-refuses" && one.to_string().contains(cluster));
            ensure!(found, "{list:#}");
            Ok(())
        })
        .unwrap();
    }
    let (code, text) = stage.ctl().unwrap().arg("mla").said(STAGE_TIMEOUT).unwrap();
    assert_eq!(code, 7, "{text}");
    for line in ["cluster/cluster-c", "cluster/cluster-d"] {
        let mut lines = text.lines().filter(|one| one.contains(line));
        assert!(lines.any(|one| one.contains("refused")), "{text}");
    }
}

#[test]
fn tier3_each_tenants_samples_reach_cortex_through_its_gateway() {
    let test = "tier3_each_tenants_samples_reach_cortex_through_its_gateway";
    let programs = skip::program("nginx").and_then(|_| parts::cortex());
    let Some(program) = skip::need(TIER, test, programs).unwrap() else {
        return;
    };
    let mut stage = Stage::new(Options {
        guests: 8,
        hosts: 4,
        zones: 2,
        clusters: 4,
        page: Some(PAGE),
        ..Options::default()
    })
    .unwrap();
    stage.set_settings(format!(
        "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  flush: {{ interval: 200ms, sync: 200ms }}\n",
        stage.path().join("queues").display()
    ));
    let mut cortex = Cortex::start(program, stage.path(), true).unwrap();
    let [first, second] = TENANTS.map(|tenant| MlaGateway::start(tenant, cortex.address).unwrap());
    send(&stage, "cluster-a", &first, PUSH, true);
    send(&stage, "cluster-b", &second, PUSH, true);
    send(&stage, "cluster-c", &first, PUSH, false);
    // The gateway has this one location exactly.
    send(&stage, "cluster-d", &first, "/api/v1/push/", true);
    stage.start_collector(Beat::default()).unwrap();
    stage.until_up(8).unwrap();

    until_stored(&stage, &cortex);
    until_sent_with(&stage, "2.0");
    check_refused(&stage);
    check_isolation(&cortex);

    // Until Cortex is back, the gateways answer 502, and samples wait. A Cortex without 2.0 answers
    // 415 to it (200 before release 1.21), and refuses zstd.
    cortex.restart(false).unwrap();
    until_sent_with(&stage, "1.0");
    let newest = |tenant: &str, function: &str| {
        let promql = format!("{function}(timestamp(up{{job=\"node-exporter\"}}))");
        value(&one(&cortex, tenant, &promql)?)
    };
    for tenant in TENANTS {
        let with_1_0 = newest(tenant, "max").unwrap();
        wait::eventually(STAGE_TIMEOUT, "samples of all guests by 1.0", || {
            let oldest = newest(tenant, "min")?;
            ensure!(oldest > with_1_0, "{tenant}: {oldest}, {with_1_0}");
            Ok(())
        })
        .unwrap();
    }
    until_stored(&stage, &cortex);
    until_sent_with(&stage, "1.0");
    check_isolation(&cortex);
}
