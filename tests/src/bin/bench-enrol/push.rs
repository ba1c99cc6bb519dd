//! Agents that connect to the collector: how soon all are back after it has restarted, directly and
//! behind one relay.
//!
//! ```text
//! enrol all ─▶ steady ─▶ restart ─▶ the same agents behind a relay ─▶ steady ─▶ restart
//! ```
//! The agents wait as the real ones do.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::Result;
use virtfleet_tests::{
    bins,
    measure::{Table, usage},
    ports,
    process::{Launch, Process},
    sim::{
        Options, Plan,
        enrol::{AgentDisk, AgentHost, AgentSpec, RunningAgent},
    },
    wait::until,
};

use super::{Arguments, Bench, MIB, OTHER_FILES, SOON, say};

/// The relay has two connections for each agent.
const FILES_PER_AGENT: u64 = 2;
/// Intervals over which the steady state is measured.
const STEADY_INTERVALS: u64 = 3;

/// Agents that connect, and the collector.
struct PushBench {
    bench: Bench,
    host: AgentHost,
    ingest: SocketAddr,
}

/// Measures as many agents as open files allow.
pub(super) fn run(arguments: &Arguments, file_limit: u64) -> Result<()> {
    let max = (file_limit.saturating_sub(OTHER_FILES) / FILES_PER_AGENT) as usize;
    let guests = arguments.guests.min(max);
    let folder = tempfile::tempdir()?;
    let port = ports::free()?.port();
    let ingest = ports::free()?;
    let bench = Bench {
        folder: folder.path().to_owned(),
        api: ports::free()?,
        arguments: Arguments {
            guests,
            ..arguments.clone()
        },
        port,
        plan: Plan::new(&Options {
            guests,
            hosts: (guests / 25).max(3),
            clusters: 10,
            port,
            ..Options::default()
        })?,
        // Connections that end because of their age would disturb the measurement.
        settings: format!("ingest: {{ address: '{ingest}', maxAge: 1h }}\n"),
    };
    let host = bench.create_authority()?;
    bench.write_manifests(&bench.plan.guests)?;
    PushBench { bench, host, ingest }.run()
}

impl PushBench {
    fn run(&self) -> Result<()> {
        let mut table = Table::new(&["agents that connect", "value", "goal"]);
        let mut collector = self.bench.collector("24h")?;
        let started = Instant::now();
        let agents = self.connect(self.ingest, None)?;
        self.until_all_report(&agents, &vec![0; agents.len()])?;
        let enrolled = format!("{:.1} s", started.elapsed().as_secs_f64());
        table.row(&["enrol all, first attempts within 10 s: time", &enrolled, ""]);
        collector = self.restart("direct", collector, &agents, &mut table)?;

        let relay = self.relay()?;
        let disks = agents
            .into_iter()
            .map(RunningAgent::stop)
            .collect::<Result<Vec<_>>>()?;
        let agents = self.connect(relay.forward, Some(disks))?;
        self.until_all_report(&agents, &vec![0; agents.len()])?;
        let collector = self.restart("relay", collector, &agents, &mut table)?;
        table.row(&["relay: resident", &mib(usage::resident(relay.process.id())?), ""]);
        say(&self.connections()?)?;
        Bench::stop(collector)?;
        say(&format!(
            "\n{} agents that connect\n{}",
            agents.len(),
            table.render()
        ))
    }

    /// Starts the agent of each VM, with these disks or with new ones.
    fn connect(&self, to: SocketAddr, disks: Option<Vec<AgentDisk>>) -> Result<Vec<RunningAgent>> {
        let mut disks = disks.unwrap_or_default().into_iter();
        let guests = self.bench.plan.guests.iter().zip(0u64..);
        guests
            .map(|(guest, seed)| {
                let mut spec = AgentSpec::honest(guest)?.pushing(to).at_real_pace(seed);
                if let Some(disk) = disks.next() {
                    spec.disk = disk;
                }
                self.host.run(spec)
            })
            .collect()
    }

    /// Measures the steady state, restarts the collector, and measures until all are back.
    fn restart(
        &self,
        way: &str,
        collector: Process,
        agents: &[RunningAgent],
        table: &mut Table,
    ) -> Result<Process> {
        let window = Duration::from_secs(STEADY_INTERVALS * self.bench.arguments.interval);
        let (cpu, steady) = Bench::observe(collector.id(), window)?;
        table.row(&[&format!("{way}: CPU a minute"), &format!("{cpu:.1} s"), ""]);
        table.row(&[&format!("{way}: resident"), &format!("{steady:.0} MiB"), ""]);
        Bench::stop(collector)?;
        let before: Vec<u64> = agents.iter().map(RunningAgent::reports).collect();
        let pushes: u64 = agents.iter().map(RunningAgent::pushes).sum();
        let started = Instant::now();
        let collector = self.bench.collector("24h")?;
        self.until_all_report(agents, &before)?;
        let back = started.elapsed().as_secs_f64();
        let peak = usage::peak(collector.id())? as f64 / MIB;
        let cpu = usage::cpu(collector.id())?.as_secs_f64();
        let tries = agents.iter().map(RunningAgent::pushes).sum::<u64>() - pushes;
        let row = |what: &str, value: String, goal: &str, table: &mut Table| {
            table.row(&[&format!("{way}, restart: {what}"), &value, goal]);
        };
        row("until all are back", format!("{back:.1} s"), "<= 60 s", table);
        row(
            "peak memory / steady",
            format!("{:.2}", peak / steady),
            "<= 2",
            table,
        );
        row("CPU", format!("{cpu:.1} s"), "", table);
        row(
            "connections for each agent",
            format!("{:.2}", tries as f64 / agents.len() as f64),
            "",
            table,
        );
        say(&format!("{way}: all are back after a restart"))?;
        Ok(collector)
    }

    /// Waits until each agent was pulled again.
    fn until_all_report(&self, agents: &[RunningAgent], before: &[u64]) -> Result<()> {
        let is_back = |(agent, before): (&RunningAgent, &u64)| agent.reports() > *before;
        until(self.bench.patience(), "all agents are pulled", || {
            agents.iter().zip(before).all(is_back)
        })
    }

    fn relay(&self) -> Result<Relay> {
        let (connect, forward, probes) = (ports::free()?, ports::free()?, ports::free()?);
        let mut process = Launch::new(bins::collector()?)
            .args([
                "relay",
                "--connect.allow-cidrs=127.0.0.0/8",
                "--max-connections=16384",
            ])
            .arg(format!("--connect.address={connect}"))
            .arg(format!("--forward.address={forward}"))
            .arg(format!("--forward.collector={}", self.ingest))
            .arg(format!("--probe.address={probes}"))
            .start(&self.bench.folder)?;
        process.wait_for_line("relaying", SOON)?;
        Ok(Relay { process, forward })
    }

    /// What became of the connections since the last start of the collector.
    fn connections(&self) -> Result<String> {
        let page = self.bench.get("/metrics")?;
        let counted = page.lines().filter(|line| {
            line.starts_with("virtfleet_collector_ingest_connections_total{") && !line.ends_with(" 0")
        });
        Ok(counted.collect::<Vec<_>>().join("\n"))
    }
}

/// A running relay.
struct Relay {
    process: Process,
    forward: SocketAddr,
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / MIB)
}
