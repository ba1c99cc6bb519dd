//! The agent's figures beside node_exporter's, both measured in the same run on the same machine.
//!
//! Both serve the same collectors. Cost and latency of a scrape are measured over plain HTTP on loopback, in turns; memory
//! after 1,000 scrapes over TLS with client certificates; rest while nobody asks.

use std::{
    fs,
    io::{Write as _, stdout},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use virtfleet_tests::{
    bins,
    measure::{Table, usage},
    parts,
    pki::{self, Authority, Files},
    ports,
    process::{Launch, Process},
    scrape::Client,
    wait,
};

/// Measure the agent beside node_exporter.
#[derive(Debug, Parser)]
#[command(name = "bench-agent")]
struct Arguments {
    /// Scrapes over plain HTTP that are measured, each program.
    #[arg(long, default_value_t = 1000)]
    scrapes: usize,
    /// Seconds of rest.
    #[arg(long, default_value_t = 20)]
    rest: u64,
}

const SOON: Duration = Duration::from_secs(15);
/// The collectors that the agent has by default, by node_exporter's names.
const COLLECTORS: [&str; 12] = [
    "cpu",
    "diskstats",
    "filesystem",
    "loadavg",
    "meminfo",
    "netdev",
    "os",
    "pressure",
    "stat",
    "time",
    "uname",
    "vmstat",
];
const MIB: f64 = 1024.0 * 1024.0;

/// A program that is measured.
struct Subject {
    process: Process,
    client: Client,
    latencies: Vec<Duration>,
    cpu: Duration,
    samples: usize,
}

/// What was found of one program.
struct Figures {
    binary: f64,
    resident: f64,
    rest: f64,
    cpu: f64,
    median: f64,
    worst: f64,
    samples: usize,
}

impl Subject {
    fn new(mut process: Process, address: SocketAddr, tls: Option<&Authority>) -> Result<Self> {
        process.wait_for_port(address, SOON)?;
        let client = match tls {
            None => Client::plain(address, SOON)?,
            Some(authority) => Client::tls(address, authority.client_config(&authority.collector()?)?, SOON)?,
        };
        Ok(Self {
            process,
            client,
            latencies: Vec::new(),
            cpu: Duration::ZERO,
            samples: 0,
        })
    }

    /// As Prometheus asks, over one connection.
    fn scrape(&mut self, times: usize) -> Result<()> {
        let before = usage::cpu(self.process.id())?;
        for _ in 0..times {
            let start = Instant::now();
            self.client
                .get_with("/metrics", &[("accept-encoding", "gzip")])?
                .ok()?;
            self.latencies.push(start.elapsed());
        }
        self.cpu += usage::cpu(self.process.id())?.saturating_sub(before);
        Ok(())
    }

    fn forget(&mut self) -> Result<()> {
        let page = self.client.get("/metrics")?.ok()?;
        self.samples = page
            .text()?
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .count();
        ensure!(self.samples > 0, "an empty page");
        self.latencies.clear();
        self.cpu = Duration::ZERO;
        Ok(())
    }

    /// Seconds of the scrape that `share` of all were faster than.
    fn quantile(&mut self, share: f64) -> f64 {
        self.latencies.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index within the list"
        )]
        let index = (self.latencies.len() as f64 * share) as usize;
        self.latencies
            .get(index.min(self.latencies.len() - 1))
            .map_or(0.0, Duration::as_secs_f64)
    }
}

fn agent(folder: &Path, address: SocketAddr, tls: Option<&Files>) -> Result<Process> {
    let tls = match tls {
        None => "    plain: true\n".to_owned(),
        Some(files) => format!(
            "  tls:\n    certificate: {}\n    key: {}\n    clientCA: {}\n",
            files.certificate.display(),
            files.key.display(),
            files.ca.display()
        ),
    };
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  - name: default\n    address: {address}\n{tls}"
    );
    let path = folder.join("agent.yaml");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Launch::new(bins::agent()?)
        .args(["run", "--config"])
        .arg(path)
        .start(folder)
}

fn node_exporter(folder: &Path, address: SocketAddr, tls: Option<&Files>) -> Result<Process> {
    let mut launch = Launch::new(parts::node_exporter()?)
        .arg(format!("--web.listen-address={address}"))
        .arg("--collector.disable-defaults")
        .args(COLLECTORS.map(|name| format!("--collector.{name}")));
    if let Some(files) = tls {
        let text = format!(
            "tls_server_config:\n  cert_file: {}\n  key_file: {}\n  client_ca_file: {}\n  client_auth_type: RequireAndVerifyClientCert\n",
            files.certificate.display(),
            files.key.display(),
            files.ca.display()
        );
        let path = folder.join("web.yml");
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        launch = launch.arg(format!("--web.config.file={}", path.display()));
    }
    launch.start(folder)
}

type Start = fn(&Path, SocketAddr, Option<&Files>) -> Result<Process>;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("bench")?;
    let certificate = authority.agent("bench", "agent", "uid")?;
    let files = pki::write(&folder.path().join("pki"), "agent", &authority, &certificate)?;
    let programs: [(Start, PathBuf); 2] = [(agent, bins::agent()?), (node_exporter, parts::node_exporter()?)];

    // A folder each: logs and settings of two runs of one program must not meet.
    let [plain_folder, tls_folder] = ["plain", "tls"].map(|name| folder.path().join(name));
    fs::create_dir(&plain_folder).and_then(|()| fs::create_dir(&tls_folder))?;

    let mut plain = Vec::new();
    for (start, _) in &programs {
        let address = ports::free()?;
        let mut subject = Subject::new(start(&plain_folder, address, None)?, address, None)?;
        subject.scrape(100)?;
        subject.forget()?;
        plain.push(subject);
    }
    // In turns, so that both meet the same machine.
    for _ in 0..10 {
        for subject in &mut plain {
            subject.scrape((arguments.scrapes / 10).max(1))?;
        }
    }

    let mut secure = Vec::new();
    for (start, _) in &programs {
        let address = ports::free()?;
        let mut subject = Subject::new(
            start(&tls_folder, address, Some(&files))?,
            address,
            Some(&authority),
        )?;
        subject.scrape(1000)?;
        secure.push(subject);
    }
    let before = secure
        .iter()
        .map(|subject| usage::cpu(subject.process.id()))
        .collect::<Result<Vec<_>>>()?;
    wait::measure(Duration::from_secs(arguments.rest), || Ok(()))?;

    let mut figures = Vec::new();
    for (((_, path), subject), (quiet, before)) in
        programs.iter().zip(&mut plain).zip(secure.iter().zip(before))
    {
        let id = quiet.process.id();
        figures.push(Figures {
            binary: fs::metadata(path)?.len() as f64 / MIB,
            resident: usage::resident(id)? as f64 / MIB,
            rest: usage::cpu(id)?.saturating_sub(before).as_secs_f64() * 1e3,
            cpu: subject.cpu.as_secs_f64() * 1e6 / subject.latencies.len() as f64,
            median: subject.quantile(0.5) * 1e6,
            worst: subject.quantile(0.99) * 1e6,
            samples: subject.samples,
        });
    }
    let [ours, theirs] = figures.as_slice() else {
        anyhow::bail!("two programs are measured")
    };
    print(ours, theirs, &arguments)
}

fn print(ours: &Figures, theirs: &Figures, arguments: &Arguments) -> Result<()> {
    let mut table = Table::new(&["figure", "virtfleet-agent", "node_exporter", "ratio", "goal", ""]);
    let mut row = |name: &str, unit: &str, pair: (f64, f64), goal: &str, met: Option<bool>| {
        let cell = |value: f64| format!("{value:.1} {unit}");
        let verdict = met.map_or("", |met| if met { "met" } else { "MISSED" });
        let ratio = if pair.1 > 0.0 {
            format!("{:.3}", pair.0 / pair.1)
        } else {
            "-".to_owned()
        };
        table.row(&[name, &cell(pair.0), &cell(pair.1), &ratio, goal, verdict]);
    };
    let rest = format!("CPU in {} s of rest", arguments.rest);
    row(
        "binary",
        "MiB",
        (ours.binary, theirs.binary),
        "≤ 5.5 MiB",
        Some(ours.binary <= 5.5),
    );
    row(
        "resident, 1,000 TLS scrapes",
        "MiB",
        (ours.resident, theirs.resident),
        "≤ 6 MiB",
        Some(ours.resident <= 6.0),
    );
    // A timer's tick is not work: less than a thousandth of a CPU is rest.
    let idle = ours.rest <= arguments.rest as f64;
    row(
        &rest,
        "ms",
        (ours.rest, theirs.rest),
        "none (< 0.1 %)",
        Some(idle),
    );
    row(
        "CPU per scrape",
        "µs",
        (ours.cpu, theirs.cpu),
        "≤ 1/5",
        Some(ours.cpu * 5.0 <= theirs.cpu),
    );
    row("latency p50", "µs", (ours.median, theirs.median), "", None);
    row("latency p99", "µs", (ours.worst, theirs.worst), "", None);
    let note = format!(
        "{} scrapes each over plain HTTP on one connection, gzip asked for; {} and {} samples a page.",
        arguments.scrapes, ours.samples, theirs.samples
    );
    writeln!(stdout(), "{}\n{note}", table.render()).context("print")
}
