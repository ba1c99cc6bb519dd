//! A program under measurement: scraped over one connection, as Prometheus does, with its latency
//! and CPU time recorded.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use tempfile::TempDir;
use virtfleet_tests::{
    measure::usage,
    parity::programs::{SOON, Serve},
    pki::Authority,
    ports,
    process::Process,
    scrape::Client,
};

/// Both programs, always in this order: the agent, node_exporter.
pub(crate) const PROGRAMS: [Program; 2] = [Program::Agent, Program::NodeExporter];

#[derive(Debug, Clone, Copy)]
pub(crate) enum Program {
    Agent,
    NodeExporter,
}

impl Program {
    /// Starts the program with its own folder for logs and settings.
    pub(crate) fn start(self, serve: &Serve) -> Result<Subject> {
        let (folder, address) = (tempfile::tempdir()?, ports::free()?);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let process = match self {
            Self::Agent => serve.agent(folder.path(), address, None)?,
            Self::NodeExporter => serve.node_exporter(folder.path(), address, None)?,
        };
        Subject::new(process, address, None, folder)
    }

    /// The same over TLS with client certificates.
    pub(crate) fn start_tls(self, serve: &Serve, authority: &Authority, pki: &Path) -> Result<Subject> {
        let certificate = authority.agent("bench", "agent", "uid")?;
        let files = virtfleet_tests::pki::write(pki, "agent", authority, &certificate)?;
        let (folder, address) = (tempfile::tempdir()?, ports::free()?);
        let process = match self {
            Self::Agent => serve.agent(folder.path(), address, Some(&files))?,
            Self::NodeExporter => serve.node_exporter(folder.path(), address, Some(&files))?,
        };
        Subject::new(process, address, Some(authority), folder)
    }
}

/// A program under measurement.
pub(crate) struct Subject {
    pub(crate) process: Process,
    pub(crate) client: Client,
    pub(crate) samples: usize,
    latencies: Vec<Duration>,
    cpu: Duration,
    // Dropped after the process, whose log is in this folder.
    _folder: TempDir,
}

impl Subject {
    fn new(
        mut process: Process,
        address: SocketAddr,
        tls: Option<&Authority>,
        folder: TempDir,
    ) -> Result<Self> {
        process.wait_for_port(address, SOON)?;
        let client = match tls {
            None => Client::plain(address, SOON)?,
            Some(authority) => Client::tls(address, authority.client_config(&authority.collector()?)?, SOON)?,
        };
        Ok(Self {
            process,
            client,
            samples: 0,
            latencies: Vec::new(),
            cpu: Duration::ZERO,
            _folder: folder,
        })
    }

    /// Scrapes, with gzip as Prometheus requests it, or without.
    pub(crate) fn scrape(&mut self, times: usize, gzip: bool) -> Result<()> {
        let headers: &[_] = if gzip { &[("accept-encoding", "gzip")] } else { &[] };
        let before = usage::cpu(self.process.id())?;
        for _ in 0..times {
            let start = Instant::now();
            self.client.get_with("/metrics", headers)?.ok()?;
            self.latencies.push(start.elapsed());
        }
        self.cpu += usage::cpu(self.process.id())?.saturating_sub(before);
        Ok(())
    }

    /// Warms up, counts the samples of a page, and discards the measurements so far.
    pub(crate) fn warm(&mut self, times: usize, gzip: bool) -> Result<()> {
        self.scrape(times, gzip)?;
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

    /// Mean CPU time of one scrape, in µs.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.latencies.len().max(1) as f64
    }

    /// Quantile `share` of the scrape durations, in µs.
    pub(crate) fn quantile(&mut self, share: f64) -> f64 {
        quantile(&mut self.latencies, share)
    }
}

/// Quantile `share` of `times`, in µs.
pub(crate) fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index within the list"
    )]
    let index = (times.len() as f64 * share) as usize;
    let found = times.get(index.min(times.len().saturating_sub(1)));
    found.map_or(0.0, Duration::as_secs_f64) * 1e6
}

/// Starts both programs with the same collectors, warms them up, then scrapes each `scrapes` times.
/// The programs alternate, so that both run under the same machine load.
pub(crate) fn in_turns(serve: &Serve, scrapes: usize, gzip: bool) -> Result<[Subject; 2]> {
    let [mut ours, mut theirs] = [PROGRAMS[0].start(serve)?, PROGRAMS[1].start(serve)?];
    let warm = (scrapes / 10).clamp(5, 100);
    ours.warm(warm, gzip)?;
    theirs.warm(warm, gzip)?;
    for _ in 0..10 {
        ours.scrape((scrapes / 10).max(1), gzip)?;
        theirs.scrape((scrapes / 10).max(1), gzip)?;
    }
    Ok([ours, theirs])
}
