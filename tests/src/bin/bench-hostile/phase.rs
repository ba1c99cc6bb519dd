//! One phase: a fleet, a collector that watches it, and the measurements.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Write as _, stdout},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    measure::usage,
    pki::{self, Authority},
    ports,
    scrape::Client,
    sim::{self, Fault, Options, Plan},
    wait::{eventually, measure},
};

/// The tenant with the attacking guests.
const HOSTILE: &str = "hostile";
/// Attacks. If there are fewer guests than attacks, only the first attacks are used.
const ATTACKS: [Fault; 15] = [
    Fault::Sections,
    Fault::Findings,
    Fault::Echo,
    Fault::Late,
    Fault::Continue,
    Fault::Redirect,
    Fault::Claims,
    Fault::Headers,
    Fault::Slow,
    Fault::Endless,
    Fault::HugeReport,
    Fault::Silent,
    Fault::Forge,
    Fault::WrongVm,
    Fault::Garbage,
];
/// Connections to the collector's API on which the client sends nothing.
const IDLE_CONNECTIONS: usize = 500;
const SOON: Duration = Duration::from_secs(15);

/// The measured fleet.
pub(super) struct Fleet {
    /// Guests that behave in both phases.
    pub(super) guests: usize,
    /// Guests of the attacking tenant.
    pub(super) hostile: usize,
    /// Length of a phase.
    pub(super) length: Duration,
    /// Time between two pulls of a guest.
    pub(super) interval: Duration,
}

/// Results of one phase.
pub(super) struct Figures {
    /// Time between two pulls of one guest: 99th percentile over the guests that behave in both
    /// phases.
    pub(super) gap_p99: Duration,
    /// Pulls of these guests.
    pub(super) pulls: usize,
    /// Peak of the collector's resident memory, in bytes.
    pub(super) peak: u64,
    /// The collector's CPU time per minute.
    pub(super) cpu_a_minute: Duration,
    /// Longest response time of `/metrics/fleet`, which is requested once a second.
    pub(super) slowest_answer: Duration,
    /// Longest line of the collector's log, in bytes.
    pub(super) longest_log_line: usize,
    /// Guests of the attacking tenant for which the collector reports a finding or a class of
    /// failure.
    pub(super) named: usize,
    /// Finding ids and failure classes, by attack.
    pub(super) words: BTreeMap<&'static str, BTreeSet<String>>,
}

/// Runs one phase.
///
/// # Errors
/// A program cannot be started, or a well-behaved guest is not up in time.
pub(super) fn run(fleet: &Fleet, attacked: bool) -> Result<Figures> {
    let folder = tempfile::tempdir()?;
    let port = ports::free()?.port();
    let plan = plan(fleet, attacked, port)?;
    let authority = Authority::new("virtfleet bench-hostile")?;
    pki::write(
        &folder.path().join("pki"),
        "collector",
        &authority,
        &authority.collector()?,
    )?;
    let agents = sim::Fleet::start(&plan, &authority)?;
    sim::write_folder(&folder.path().join("manifests"), &plan)?;
    writeln!(
        stdout(),
        "{}: {}",
        if attacked { "attacked" } else { "quiet" },
        plan.summary()
    )?;

    let api = ports::free()?;
    let mut collector = sim::start_collector(folder.path(), api, port, fleet.interval)?;
    collector.wait_for_port(api, SOON)?;
    let honest: Vec<usize> = (0..fleet.guests).collect();
    let patience = 3 * fleet.interval + Duration::from_mins(2);
    eventually(patience, "every guest that behaves was pulled", || {
        let missing = honest
            .iter()
            .filter(|index| agents.asked(**index).is_empty())
            .count();
        ensure!(missing == 0, "{missing} were not");
        Ok(())
    })
    .with_context(|| collector.log())?;

    let idle = if attacked {
        connect_and_idle(api)?
    } else {
        Vec::new()
    };
    let id = collector.id();
    let (begun, before) = (Instant::now(), usage::cpu(id)?);
    let mut slowest = Duration::ZERO;
    measure(fleet.length, || {
        let asked = Instant::now();
        get(api, "/metrics/fleet")?;
        slowest = slowest.max(asked.elapsed());
        Ok(())
    })?;
    let ended = Instant::now();
    let used = usage::cpu(id)?.saturating_sub(before);
    let mut gaps = Vec::new();
    let mut pulls = 0;
    for index in honest {
        let asked = agents.asked(index);
        pulls += asked.iter().filter(|at| (begun..ended).contains(*at)).count();
        let since = asked.windows(2).filter(|pair| pair[1] >= begun);
        gaps.extend(since.map(|pair| pair[1].duration_since(pair[0])));
        // A guest that is no longer pulled has a long gap as well.
        gaps.extend(
            asked
                .last()
                .map(|last| ended.saturating_duration_since(*last))
                .filter(|gap| *gap > fleet.interval),
        );
    }
    let (named, words) = offenders(api, &plan)?;
    let figures = Figures {
        gap_p99: percentile(&mut gaps, 99),
        pulls,
        peak: usage::peak(id)?,
        cpu_a_minute: used.mul_f64(60.0 / fleet.length.as_secs_f64()),
        slowest_answer: slowest,
        longest_log_line: collector.log().lines().map(str::len).max().unwrap_or(0),
        named,
        words,
    };
    drop(idle);
    collector.terminate(SOON)?;
    Ok(figures)
}

fn plan(fleet: &Fleet, attacked: bool, port: u16) -> Result<Plan> {
    let options = Options {
        guests: fleet.guests,
        hosts: (fleet.guests / 25).max(3),
        clusters: 9,
        port,
        ..Options::default()
    };
    let mut plan = Plan::new(&options)?;
    let shares: Vec<(Option<Fault>, usize)> = if attacked {
        let share =
            |index| fleet.hostile / ATTACKS.len() + usize::from(index < fleet.hostile % ATTACKS.len());
        let all = ATTACKS.iter().enumerate();
        all.map(|(index, fault)| (Some(*fault), share(index))).collect()
    } else {
        vec![(None, fleet.hostile)]
    };
    plan.add_cluster(HOSTILE, &shares, &options);
    Ok(plan)
}

/// Opens connections to the API and sends nothing.
fn connect_and_idle(api: SocketAddr) -> Result<Vec<TcpStream>> {
    (0..IDLE_CONNECTIONS)
        .map(|_| TcpStream::connect_timeout(&api, SOON).context("connect to the API"))
        .collect()
}

/// Number of attacking guests that the collector reports, and the finding ids and failure classes
/// by attack.
fn offenders(api: SocketAddr, plan: &Plan) -> Result<(usize, BTreeMap<&'static str, BTreeSet<String>>)> {
    let mut findings: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut next = String::new();
    loop {
        let page: Value = get(api, &format!("/api/v1/findings?namespace={HOSTILE}{next}"))?.json()?;
        for item in page["items"].as_array().context("a list of findings")? {
            if let (Some(name), Some(id)) = (item["name"].as_str(), item["id"].as_str()) {
                let id = id
                    .split_once('-')
                    .filter(|_| id.starts_with("guest/"))
                    .map_or(id, |_| "guest/…");
                findings.entry(name.to_owned()).or_default().insert(id.to_owned());
            }
        }
        match page["continue"].as_str() {
            Some(token) => next = format!("&continue={token}"),
            None => break,
        }
    }
    let mut named = 0;
    let mut words: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for guest in &plan.guests {
        let Some(fault) = guest.fault else { continue };
        let vm: Value = get(api, &format!("/api/v1/vms/{}/{}", guest.cluster, guest.name))?.json()?;
        let class = vm["agent"]["failure"]["class"]
            .as_str()
            .map(|class| format!("failure {class}"));
        let own: BTreeSet<String> = findings
            .remove(&guest.name)
            .into_iter()
            .flatten()
            .chain(class)
            .collect();
        named += usize::from(!own.is_empty());
        words.entry(fault.name()).or_default().extend(own);
    }
    Ok((named, words))
}

fn get(api: SocketAddr, path: &str) -> Result<virtfleet_tests::scrape::Answer> {
    Client::plain(api, SOON)?.get(path)?.ok()
}

/// The percentile of `values`; zero if there are none.
fn percentile(values: &mut [Duration], percent: usize) -> Duration {
    values.sort_unstable();
    let index = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or_default()
}
