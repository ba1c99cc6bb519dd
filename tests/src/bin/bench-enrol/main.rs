//! Benchmark of enrolment: many simulated agents in this process, the release collector with a
//! manifest folder as another one.
//!
//! ```text
//! first start ─▶ agents without certificates ─▶ enrol all ─▶ steady ─▶ restart ─▶ one more VM ─▶ renewals
//! ```
//!
//! Beside it: how many certificates the authority alone signs, and the memory of the real agent.
//! Then the same for agents that connect to the collector.

mod agent;
mod push;

use std::{
    fs,
    io::{Write as _, stdout},
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use nix::sys::signal::Signal;
use virtfleet_collector::ca::{Authorities, CaStore, read_csr};
use virtfleet_collector_core::enrolment::CertificateLife;
use virtfleet_runtime::tls::{Validity, VmIdentity};
use virtfleet_tests::{
    bins,
    measure::{Table, usage},
    pki::TRUST_DOMAIN,
    ports,
    process::{Launch, Process},
    scrape::Client,
    sim::{
        self, Guest, Options, Plan,
        enrol::{AgentDisk, AgentHost, AgentSpec, RunningAgent},
    },
    wait::{eventually, measure, until},
};
use virtfleet_wire::{enrolment::Nonce, ids::VmKey};

/// Measure the enrolment of many agents.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench-enrol")]
struct Arguments {
    /// Simulated agents.
    #[arg(long, default_value_t = 10_000)]
    guests: usize,
    /// Seconds between two pulls of an agent.
    #[arg(long, default_value_t = 30)]
    interval: u64,
    /// VMs that are added one by one, to measure how soon each is joined.
    #[arg(long, default_value_t = 20)]
    added: usize,
    /// Starts of the real agent of each kind; the median of their memory counts.
    #[arg(long, default_value_t = 5)]
    starts: usize,
    /// Certificates that are signed to measure the signature alone.
    #[arg(long, default_value_t = 5_000)]
    signatures: u32,
    /// Seconds from the last restart to the first renewal; all agents must be back by then.
    #[arg(long, default_value_t = 60)]
    lead: u64,
    /// Only agents that connect to the collector.
    #[arg(long)]
    push_only: bool,
}

/// A listener, and the collector's connection.
const FILES_PER_AGENT: u64 = 2;
/// Open files beside those of the agents, with connections that are about to end.
const OTHER_FILES: u64 = 400;
const SOON: Duration = Duration::from_secs(30);
const MIB: f64 = 1024.0 * 1024.0;
/// Lifetime of certificates in the measurement of renewals.
const RENEWED_LIFETIME: Duration = Duration::from_hours(1);
/// Renewals are measured at so many times their rate, because they cost little.
const RENEWAL_SPEED: u32 = 10;

struct Bench {
    folder: PathBuf,
    arguments: Arguments,
    api: SocketAddr,
    port: u16,
    plan: Plan,
    /// Further settings of the collector.
    settings: String,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let (limit, agents) = (sim::raise_file_limit()?, arguments.guests + arguments.added);
    if arguments.push_only {
        return push::run(&arguments, limit);
    }
    let needed = FILES_PER_AGENT * agents as u64 + OTHER_FILES;
    ensure!(
        limit >= needed,
        "{agents} agents need {needed} open files, and this process may have {limit}: raise the limit \
         (ulimit -Hn {needed}), or use --guests {}",
        (limit.saturating_sub(OTHER_FILES) / FILES_PER_AGENT).saturating_sub(arguments.added as u64)
    );
    let port = ports::free()?.port();
    let plan = Plan::new(&Options {
        guests: arguments.guests + arguments.added,
        hosts: (arguments.guests / 25).max(3),
        clusters: 10,
        port,
        ..Options::default()
    })?;
    let bench = Bench {
        folder: folder.path().to_owned(),
        api: ports::free()?,
        arguments: arguments.clone(),
        port,
        plan,
        settings: String::new(),
    };
    bench.run()?;
    push::run(&arguments, limit)
}

impl Bench {
    fn run(&self) -> Result<()> {
        let host = self.create_authority()?;
        let (fleet, added) = self.plan.guests.split_at(self.arguments.guests);
        let agents = fleet
            .iter()
            .map(|guest| host.run(AgentSpec::honest(guest)?))
            .collect::<Result<Vec<_>>>()?;
        self.write_manifests(fleet)?;
        say(&format!("{} agents are up", agents.len()))?;

        let mut table = Table::new(&["figure", "value", "goal"]);
        agent::memory(&self.folder, self.arguments.starts, &mut table)?;
        self.sign(&mut table)?;
        let collector = self.enrol(&agents, &mut table)?;
        let steady = self.steady(&collector, &mut table)?;
        let collector = self.restart(collector, steady.1, &mut table)?;
        self.join(&host, added, &mut table)?;
        self.renew(collector, &agents, &mut table)?;
        say(&format!("\n{}", table.render()))
    }

    /// Starts the collector once, which creates the authority that the agents trust.
    fn create_authority(&self) -> Result<AgentHost> {
        fs::create_dir_all(self.folder.join("manifests"))?;
        let first = self.collector("24h")?;
        Self::stop(first)?;
        AgentHost::new(&self.folder.join("ca/clients.crt"))
    }

    fn enrol(&self, agents: &[RunningAgent], table: &mut Table) -> Result<Process> {
        let started = Instant::now();
        let collector = self.collector("24h")?;
        let ready = usage::cpu(collector.id())?;
        // Not the collector's count: on a busy machine it may give up on an agent that accepts.
        let all_accepted = || agents.iter().all(|agent| agent.accepted() > 0);
        until(self.patience(), "all agents are enrolled", all_accepted)?;
        let enrolled = started.elapsed();
        self.until(OK_PULLS, agents.len())?;
        let cpu = usage::cpu(collector.id())?;
        let all = agents.len() as f64;
        let again = agents.iter().filter(|agent| agent.accepted() != 1).count();
        if again > 0 {
            // A busy machine may be the reason: an agent that answers too late is asked again.
            say(&self.results()?)?;
        }
        table.row(&["enrol all: agents with two certificates", &again.to_string(), "0"]);
        table.row(&[
            "start: CPU until the collector is ready",
            &format!("{:.1} s", ready.as_secs_f64()),
            "",
        ]);
        table.row(&[
            "enrol all: CPU of the collector",
            &format!("{:.1} s", cpu.saturating_sub(ready).as_secs_f64()),
            "<= 60 s for 10,000",
        ]);
        table.row(&["enrol all: time", &format!("{:.1} s", enrolled.as_secs_f64()), ""]);
        table.row(&[
            "enrolments and first pulls a second of CPU",
            &format!("{:.0}", all / cpu.saturating_sub(ready).as_secs_f64()),
            ">= 167",
        ]);
        say("all are enrolled")?;
        Ok(collector)
    }

    /// The cost of a signature alone: everything else of an enrolment is connections and records.
    fn sign(&self, table: &mut Table) -> Result<()> {
        let authorities = self.authorities()?;
        let guest = self.plan.guests.first().context("the fleet is empty")?;
        let csr = AgentDisk::new()?.csr(&Nonce::from_bytes([0; 32]), &[])?;
        let own = std::process::id();
        let now = unix_seconds();
        let validity = Validity {
            not_before: now,
            not_after: now + RENEWED_LIFETIME.as_secs(),
        };
        let before = usage::cpu(own)?;
        for _ in 0..self.arguments.signatures {
            let csr = read_csr(&csr)?;
            authorities.sign_agent(csr.key(), &identity(guest)?, validity)?;
        }
        let cpu = usage::cpu(own)?.saturating_sub(before).as_secs_f64();
        table.row(&[
            "signatures a second of CPU, with their CSRs",
            &format!("{:.0}", f64::from(self.arguments.signatures) / cpu),
            "",
        ]);
        Ok(())
    }

    /// CPU a minute without enrolments, and memory.
    fn steady(&self, collector: &Process, table: &mut Table) -> Result<(f64, f64)> {
        let (cpu, memory) = Self::observe(collector.id(), Duration::from_secs(4 * self.arguments.interval))?;
        table.row(&["steady: CPU a minute", &format!("{cpu:.1} s"), ""]);
        table.row(&["steady: resident", &format!("{memory:.0} MiB"), ""]);
        Ok((cpu, memory))
    }

    fn restart(&self, collector: Process, steady: f64, table: &mut Table) -> Result<Process> {
        Self::stop(collector)?;
        let started = Instant::now();
        let collector = self.collector("24h")?;
        self.until(OK_PULLS, self.arguments.guests)?;
        let back = started.elapsed();
        let peak = usage::peak(collector.id())? as f64 / MIB;
        let cpu = usage::cpu(collector.id())?.as_secs_f64();
        table.row(&[
            "restart: until all are back",
            &format!("{:.1} s", back.as_secs_f64()),
            "<= 60 s",
        ]);
        table.row(&["restart: CPU", &format!("{cpu:.1} s"), ""]);
        table.row(&[
            "restart: peak memory / steady",
            &format!("{:.2}", peak / steady),
            "<= 2",
        ]);
        let issued = self.metric(ISSUED)?;
        ensure!(issued < 0.5, "{issued} agents enrolled again");
        say("all are back after a restart")?;
        Ok(collector)
    }

    /// Adds VMs one by one, starts the agent of each some time later, and measures until it is
    /// joined.
    fn join(&self, host: &AgentHost, added: &[Guest], table: &mut Table) -> Result<()> {
        let mut times = Vec::new();
        for (number, guest) in added.iter().enumerate() {
            self.write_vmi(guest)?;
            let path = format!("/api/v1/vms/{}/{}", guest.cluster, guest.name);
            eventually(SOON, "the VM was pulled", || {
                let vm = self.get(&path)?;
                ensure!(vm.contains("\"class\":\"connect\""), "not yet");
                Ok(())
            })?;
            // At another phase of the retries each time.
            measure(Duration::from_millis(137 * number as u64 % 1000), || Ok(()))?;
            let started = Instant::now();
            host.run(AgentSpec::honest(guest)?)?;
            eventually(SOON, "the VM is joined", || {
                let vm = self.get(&path)?;
                ensure!(vm.contains("\"status\":\"up\""), "not yet");
                Ok(())
            })?;
            times.push(started.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        if let (Some(middle), Some(longest)) = (times.get(times.len() / 2), times.last()) {
            table.row(&["one VM: until joined, median", &format!("{middle:.2} s"), ""]);
            table.row(&[
                "one VM: until joined, longest",
                &format!("{longest:.2} s"),
                "<= 2 s",
            ]);
        }
        Ok(())
    }

    /// Compares the CPU with and without renewals, at a lifetime of an hour.
    fn renew(&self, collector: Process, agents: &[RunningAgent], table: &mut Table) -> Result<()> {
        // Added agents are pulled as well, so this is measured again.
        let window = Duration::from_secs(4 * self.arguments.interval);
        let (off, _) = Self::observe(collector.id(), window)?;
        Self::stop(collector)?;
        let authorities = self.authorities()?;
        // As many are due in a second as in a fleet that renews at two thirds of an hour, times the
        // speed.
        let period = RENEWED_LIFETIME * 2 / 3 / RENEWAL_SPEED;
        let begin = unix_seconds() + self.arguments.lead;
        for (number, (agent, guest)) in agents.iter().zip(&self.plan.guests).enumerate() {
            let due = begin + period.as_secs() * number as u64 / agents.len() as u64;
            set_due(agent, guest, &authorities, due)?;
        }
        let collector = self.collector("1h")?;
        self.until(OK_PULLS, agents.len())?;
        let now = unix_seconds();
        ensure!(now < begin, "the agents came back too late; use fewer");
        measure(Duration::from_secs(begin - now), || Ok(()))?;
        let before = self.metric(RENEWED)?;
        let (on, _) = Self::observe(collector.id(), window)?;
        let renewed = self.metric(RENEWED)? - before;
        let rate = renewed / window.as_secs_f64();
        let added = (on - off) / f64::from(RENEWAL_SPEED);
        table.row(&[
            "renewals a second (at ten times the rate)",
            &format!("{rate:.1}"),
            "",
        ]);
        table.row(&[
            "CPU a minute with / without them",
            &format!("{on:.1} s / {off:.1} s"),
            "",
        ]);
        table.row(&[
            "renewal at a lifetime of 1 h: additional CPU",
            &format!("{:.1} %", 100.0 * added / off),
            "<= 5 %",
        ]);
        Self::stop(collector)
    }

    /// CPU a minute and mean resident memory in MiB over `length`.
    fn observe(id: u32, length: Duration) -> Result<(f64, f64)> {
        let before = usage::cpu(id)?;
        let (mut samples, mut sum) = (0.0, 0.0);
        measure(length, || {
            samples += 1.0;
            sum += usage::resident(id)? as f64 / MIB;
            Ok(())
        })?;
        let cpu = usage::cpu(id)?.saturating_sub(before).as_secs_f64() * 60.0 / length.as_secs_f64();
        Ok((cpu, sum / samples))
    }

    fn authorities(&self) -> Result<Authorities> {
        let store = CaStore::folder(self.folder.join("ca"), TRUST_DOMAIN);
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(runtime.block_on(store.read(unix_seconds()))?)
    }

    fn write_manifests(&self, fleet: &[Guest]) -> Result<()> {
        let plan = Plan {
            guests: fleet.to_vec(),
            ..self.plan.clone()
        };
        sim::write_folder(&self.folder.join("manifests"), &plan)
    }

    fn write_vmi(&self, guest: &Guest) -> Result<()> {
        let name = format!("vmi-{}-{}.yaml", guest.cluster, guest.name);
        let (new, path) = (
            self.folder.join(&name),
            self.folder.join("manifests/infra").join(&name),
        );
        fs::write(&new, sim::vmi(guest, &self.plan.hosts[guest.host].name))?;
        fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))
    }

    fn collector(&self, lifetime: &str) -> Result<Process> {
        let (root, interval) = (self.folder.display(), self.arguments.interval);
        let timeout = interval.min(10);
        let text = format!(
            "\
apiVersion: virtfleet.io/v1alpha1
kind: CollectorConfig
inventory:
  folder: {root}/manifests
server:
  address: {}
scrape:
  interval: {interval}s
  timeout: {timeout}s
  port: {}
  allowCIDRs: [127.64.0.0/10]
enrolment:
  trustDomain: {TRUST_DOMAIN}
  lifetime: {lifetime}
  folder: {root}/ca
{}",
            self.api, self.port, self.settings
        );
        let path = self.folder.join("collector.yaml");
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        let mut collector = Launch::new(bins::collector()?)
            .args(["serve", "--config"])
            .arg(path)
            .start(&self.folder)?;
        collector.wait_for(SOON, "the collector is ready", |_| self.get("/readyz"))?;
        Ok(collector)
    }

    fn stop(mut collector: Process) -> Result<()> {
        collector.signal(Signal::SIGTERM)?;
        let status = collector.wait(SOON)?;
        ensure!(status.success(), "{status}\n{}", collector.log());
        Ok(())
    }

    fn get(&self, path: &str) -> Result<String> {
        Ok(Client::plain(self.api, SOON)?.get(path)?.ok()?.text()?.to_owned())
    }

    fn metric(&self, name: &str) -> Result<f64> {
        let page = self.get("/metrics")?;
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        Ok(value.with_context(|| format!("no {name}"))?.parse()?)
    }

    /// The results of enrolments so far.
    fn results(&self) -> Result<String> {
        let page = self.get("/metrics")?;
        let lines = page
            .lines()
            .filter(|line| line.starts_with("virtfleet_collector_enrolments_total") && !line.ends_with(" 0"));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Time within which all agents do something, on a busy machine.
    fn patience(&self) -> Duration {
        Duration::from_secs(3 * self.arguments.interval + 300)
    }

    /// Waits until a metric has at least this value.
    fn until(&self, name: &str, count: usize) -> Result<()> {
        eventually(self.patience(), name, || {
            let value = self.metric(name)?;
            ensure!(value >= count as f64, "{value} of {count}");
            Ok(())
        })
    }
}

const OK_PULLS: &str = "virtfleet_collector_pulls_total{result=\"ok\"} ";
const ISSUED: &str = "virtfleet_collector_enrolments_total{result=\"issued\"} ";
const RENEWED: &str = "virtfleet_collector_enrolments_total{result=\"renewed\"} ";

/// Replaces an agent's certificate by one for the same key that is due for renewal at `due`.
fn set_due(agent: &RunningAgent, guest: &Guest, authorities: &Authorities, due: u64) -> Result<()> {
    let identity = identity(guest)?;
    let vm = VmKey {
        namespace: identity.namespace.clone(),
        name: identity.name.clone(),
    };
    let lifetime = RENEWED_LIFETIME.as_secs();
    let life = CertificateLife {
        not_before: 0,
        not_after: lifetime,
    };
    let not_before = due.saturating_sub(life.renew_at(&vm));
    let mut disk = agent.disk();
    let csr = read_csr(&disk.csr(&Nonce::from_bytes([0; 32]), &[])?)?;
    let validity = Validity {
        not_before,
        not_after: not_before + lifetime,
    };
    let signed = authorities.sign_agent(csr.key(), &identity, validity)?;
    disk.accept(&signed.chain_pem)?;
    agent.replace_disk(disk);
    Ok(())
}

fn identity(guest: &Guest) -> Result<VmIdentity> {
    Ok(VmIdentity {
        trust_domain: TRUST_DOMAIN.to_owned(),
        namespace: guest.cluster.parse()?,
        name: guest.name.parse()?,
        uid: guest.uid.parse()?,
    })
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn say(text: &str) -> Result<()> {
    writeln!(stdout(), "{text}")?;
    Ok(())
}
