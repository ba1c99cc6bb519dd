//! Time until all user clusters of a ClusterSource are watched, and memory of each: `make
//! bench-clusters`. The infra cluster, which is the KKP seed, too, is a real API server; the user
//! clusters are simulated.

mod servers;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use serde_json::{Value, json};
use servers::Servers;
use virtfleet_runtime::process::raise_file_limit;
use virtfleet_tests::{
    cluster::{
        ApiServer,
        live::{self, Collector},
        platforms::{definition, kkp, secret, source},
    },
    measure::{Table, many, usage},
    wait,
};

/// Measure how fast the user clusters of a ClusterSource are watched, and their memory.
#[derive(Debug, Parser)]
#[command(name = "bench-clusters")]
struct Arguments {
    /// User clusters.
    #[arg(long, default_value_t = 500)]
    clusters: usize,
    /// Nodes of each, at most 32.
    #[arg(long, default_value_t = 5)]
    nodes: usize,
    /// Seconds of the measurement without changes.
    #[arg(long, default_value_t = 60)]
    steady: u64,
}

/// Timeout until all user clusters are watched, on a busy machine.
const SYNC_TIMEOUT: Duration = Duration::from_mins(5);
const KIB: f64 = 1024.0;

fn name(cluster: usize) -> String {
    format!("c{cluster:04}")
}

/// The clusters of the seed, each with the kubeconfig that reads.
fn fill(seed: &ApiServer, servers: &Servers, clusters: usize) -> Result<()> {
    seed.install(&[definition("kubermatic.k8c.io", "Cluster", &["v1"])])?;
    for namespace in ["virtfleet", "virtfleet-kubeconfigs"] {
        seed.namespace(namespace)?;
    }
    many(clusters, |number| {
        let (name, kubeconfig) = (name(number), servers.kubeconfig(number));
        let namespace = format!("cluster-{name}");
        seed.namespace(&namespace)?;
        seed.apply(&secret(
            &namespace,
            "viewer-kubeconfig",
            "kubeconfig",
            &kubeconfig,
        ))?;
        seed.apply(&kkp(&name, "kubevirt")).map(drop)
    })
}

/// Numbers of user clusters that the collector knows, and of those that it watches.
fn counts(collector: &Collector) -> Result<(usize, usize)> {
    let list = collector.json("/api/v1/clusters")?;
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    let is_ready = |one: &&Value| one["state"] == "Ready";
    Ok((items.len(), items.iter().filter(is_ready).count()))
}

/// Times from the ClusterSource until all user clusters are found, and until all are watched.
fn sync(infra: &ApiServer, collector: &Collector, clusters: usize) -> Result<[Duration; 2]> {
    let spec = json!({ "kind": "KKP", "maxClusters": clusters.max(1) });
    let begun = Instant::now();
    infra.apply(&source("seed", &spec))?;
    let mut found = None;
    let ready = wait::eventually(SYNC_TIMEOUT, "all user clusters are watched", || {
        let (known, ready) = counts(collector)?;
        if known == clusters {
            found.get_or_insert_with(|| begun.elapsed());
        }
        ensure!(
            ready == clusters,
            "{known} of {clusters} are known, {ready} watched"
        );
        Ok(begun.elapsed())
    })?;
    Ok([found.unwrap_or(ready), ready])
}

fn main() -> Result<()> {
    let Arguments {
        clusters,
        nodes,
        steady,
    } = Arguments::parse();
    // One page of a list.
    ensure!(nodes <= 32, "at most 32 Nodes in a cluster");
    raise_file_limit()?;
    let folder = tempfile::tempdir()?;
    let (infra, servers) = (live::infra(folder.path())?, Servers::start(nodes)?);
    fill(&infra, &servers, clusters)?;

    let inventory = live::settings(folder.path(), &infra.kubeconfig(infra.admin_user()), "")?;
    let election = "leaderElection: { namespace: virtfleet }\n";
    let collector = Collector::start_with(&folder.path().join("collector"), &inventory, election)?;
    collector.until_ready()?;
    collector.until_leads()?;
    let id = collector.process.id();
    let before = usage::private(id)?;
    let [found, ready] = sync(&infra, &collector, clusters)?;
    let begun = usage::cpu(id)?;
    wait::measure(Duration::from_secs(steady), || Ok(()))?;
    let cpu = usage::cpu(id)?.saturating_sub(begun);
    let after = usage::private(id)?;
    let (_, watched) = counts(&collector)?;
    ensure!(
        watched == clusters,
        "only {watched} of {clusters} are watched still"
    );

    let each = |total: f64| total / clusters.max(1) as f64;
    let memory = each(after.saturating_sub(before) as f64) / KIB;
    let mut table = Table::new(&["figure", "goal", "measured"]);
    table.row(&[
        &format!("ClusterSource to {clusters} UserClusters"),
        "",
        &format!("{:.1} s", found.as_secs_f64()),
    ]);
    table.row(&[
        &format!("ClusterSource to {clusters} clusters that are watched"),
        "<= 30 s",
        &format!("{:.1} s", ready.as_secs_f64()),
    ]);
    table.row(&[
        &format!("private memory for each cluster with {nodes} Nodes"),
        "<= 200 KiB",
        &format!("{memory:.0} KiB"),
    ]);
    table.row(&[
        "private memory without user clusters",
        "",
        &format!("{:.0} KiB", before as f64 / KIB),
    ]);
    table.row(&[
        "CPU time for each cluster and minute, nothing changes",
        "",
        &format!(
            "{:.1} ms",
            each(cpu.as_secs_f64() * 1e3) * 60.0 / steady.max(1) as f64
        ),
    ]);
    print!("{}", table.render());
    // Used to compare runs.
    println!("{}", json!({ "clusters": clusters, "nodes": nodes }));
    Ok(())
}
