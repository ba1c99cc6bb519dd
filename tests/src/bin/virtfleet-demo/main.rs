//! Demonstration on real input: an agent on this machine, simulated guests, and on request real VMs
//! under QEMU; a collector on a folder of manifests that enrols them all, and the result on the
//! terminal. Needs no cluster and no root, and removes all its files.

mod vms;

use std::{
    collections::BTreeMap,
    fs,
    io::{IsTerminal as _, Write as _, stdout},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use virtfleet_tests::{
    bins,
    real::GUEST_TIMEOUT,
    remote_write::Counter,
    sim::{
        self, Guest, Options,
        enrol::{AgentHost, AgentSpec},
    },
    stage::{Beat, STAGE_TIMEOUT, Stage},
    this_machine, wait,
};
use vms::RealVms;

/// A collector, an agent on this machine and simulated guests, live until Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "virtfleet-demo")]
struct Arguments {
    /// Print once and exit; the exit code is 0 only if every VM answered.
    #[arg(long)]
    once: bool,
    /// Number of simulated guests.
    #[arg(long, default_value_t = 5)]
    guests: usize,
    /// Seed; the same seed generates the same fleet.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Number of real VMs, each with 1 GiB of memory; one of them is migrated while it runs.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=4))]
    vms: u8,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let options = Options {
        guests: arguments.guests,
        hosts: 4,
        zones: 3,
        clusters: 2,
        seed: arguments.seed,
        ..Options::default()
    };
    let demo = Demo::start(options, arguments.vms)?;
    if arguments.once { demo.once() } else { demo.live() }
}

/// The running fleet.
struct Demo {
    // Ends before the stage, whose folder the agents read.
    _guests: AgentHost,
    stage: Stage,
    /// Receives the metrics of both user clusters.
    receiver: Counter,
    own: Guest,
    /// Number of real VMs.
    vms: u8,
}

impl Demo {
    fn start(options: Options, vms: u8) -> Result<Self> {
        let mut stage = Stage::enrolling(options, "24h")?;
        let receiver = Counter::start()?;
        send_metrics(&mut stage, &receiver)?;
        let own = this_machine::as_guest(&stage)?;
        let host = &stage.plan.hosts[own.host];
        stage.write_manifest("infra/this-machine.yaml", &this_machine::vmi(&own, &host.name))?;
        stage.write_manifest(
            &format!("clusters/{}/this-machine.yaml", own.cluster),
            &sim::user_node(&own, host, &stage.plan.region),
        )?;
        // Its first start creates the authority that the agents trust.
        // An emulated guest takes more than a second for its page.
        let interval = Duration::from_secs(if vms == 0 { 2 } else { 4 });
        stage.start_collector(Beat {
            interval,
            timeout: interval,
        })?;
        stage.start_enrolling_agent(&own)?;
        let guests = stage.agent_host()?;
        for guest in &stage.plan.guests {
            guests.run(AgentSpec::honest(guest)?)?;
        }
        Ok(Self {
            _guests: guests,
            stage,
            receiver,
            own,
            vms,
        })
    }

    /// Starts the real VMs, if any were asked for. The others have answered before.
    fn start_vms(&self) -> Result<Option<RealVms>> {
        if self.vms == 0 {
            return Ok(None);
        }
        print(&format!(
            "starting {} VMs under QEMU; the first start on a machine makes a snapshot, which takes minutes\n",
            self.vms
        ))?;
        RealVms::start(&self.stage, self.vms).map(Some)
    }

    /// Waits until the VMs have joined and one was migrated; prints what happens.
    fn follow(&self, vms: &mut RealVms) -> Result<()> {
        let mut printed = 0;
        let ended = wait::eventually(GUEST_TIMEOUT, "the VMs enrol, and one is migrated", || {
            if let Err(error) = vms.advance(&self.stage) {
                return Ok(Err(error));
            }
            for line in &vms.story()[printed..] {
                print(&format!("{line}\n"))?;
            }
            printed = vms.story().len();
            ensure!(vms.is_done(), "so far: {:#?}", vms.story());
            Ok(Ok(()))
        });
        ended?
    }

    fn once(&self) -> Result<()> {
        let mut all = self.stage.plan.guests.len() + 1;
        let answered = self.stage.until_up(all);
        let mut vms = self.start_vms()?;
        if let Some(vms) = &mut vms {
            all += usize::from(self.vms);
            self.follow(vms)?;
        }
        let name = self.own_name();
        let detail = self.stage.ctl()?.args(["vm", &name]).text(STAGE_TIMEOUT)?;
        print(&format!(
            "{}\n{}\n$ virtfleetctl vm {name}\n{detail}",
            self.about(),
            self.fleet()?
        ))?;
        self.until_sent()?;
        answered.with_context(|| format!("not all of the {all} VMs have answered"))?;
        let enrolled = self.stage.json("/api/v1/enrolments?state=enrolled")?;
        let enrolled = enrolled["items"].as_array().map_or(0, Vec::len);
        ensure!(enrolled == all, "only {enrolled} of the {all} agents enrolled");
        print(&format!(
            "\nall {all} agents enrolled: each made its own key, and the collector issued a certificate for it\n\
             all {all} VMs answered\n"
        ))
    }

    fn live(&self) -> Result<()> {
        // Otherwise the first screen would show agents that are not up yet. Later ones show why.
        drop(self.stage.until_up(self.stage.plan.guests.len() + 1));
        self.make_unhealthy()?;
        let mut vms = self.start_vms()?;
        let terminal = stdout().is_terminal();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (mut shown, mut printed) = (String::new(), 0);
        if terminal {
            // Clear the screen.
            print("\x1b[H\x1b[2J")?;
        } else {
            print(&format!("{}\n{}\n", self.about(), self.hint()?))?;
        }
        runtime.block_on(async {
            let mut term = signal(SignalKind::terminate()).context("cannot listen to signals")?;
            let mut beat = tokio::time::interval(Duration::from_secs(1));
            loop {
                tokio::select! {
                    _ = term.recv() => break,
                    ended = tokio::signal::ctrl_c() => { ended?; break }
                    _ = beat.tick() => {
                        // The requests are not kept.
                        self.receiver.take()?;
                        if let Some(vms) = &mut vms {
                            vms.advance(&self.stage)?;
                        }
                        let story = vms.as_ref().map_or(&[][..], RealVms::story);
                        let fleet = self.fleet()?;
                        if terminal {
                            let story = story.join("\n");
                            let now = format!("{}{story}\n\n{fleet}\n{}", self.about(), self.hint()?);
                            // Cursor home; clear the rest of each line and everything below.
                            print(&format!("\x1b[H{}\x1b[J", now.replace('\n', "\x1b[K\n")))?;
                        } else {
                            for line in &story[printed..] {
                                print(&format!("{line}\n"))?;
                            }
                            printed = story.len();
                            if fleet != shown {
                                print(&fleet)?;
                            }
                        }
                        shown = fleet;
                    }
                }
            }
            print("\nstopping the collector and the agents, and removing their files\n")
        })
    }

    /// Makes an infra node and two VMs unhealthy, each in another way, so that verdicts are seen at
    /// work.
    fn make_unhealthy(&self) -> Result<()> {
        let plan = &self.stage.plan;
        // Those of the real VMs stay as they are.
        let first = if self.vms == 0 { 0 } else { RealVms::HOSTS };
        let used = |index: usize| index != self.own.host && plan.guests.iter().any(|one| one.host == index);
        let broken = (first..plan.hosts.len()).find(|index| used(*index));
        if let Some(broken) = broken {
            let nodes = sim::nodes_without(plan, &plan.hosts[broken].name);
            self.stage.write_manifest("infra/nodes.yaml", &nodes)?;
        }
        if let Some(guest) = plan.guests.iter().find(|one| Some(one.host) != broken) {
            let host = &plan.hosts[guest.host].name;
            let message = "VMI was paused, low-level IO error detected";
            self.stage
                .write_vmi(guest, &sim::paused_vmi(guest, host, message))?;
        }
        let resting = sim::stopped_vm(&plan.clusters[0], "resting");
        self.stage.write_manifest("infra/resting.yaml", &resting)
    }

    /// What the reader sees.
    fn about(&self) -> String {
        let real = match self.vms {
            0 => String::new(),
            1 => ", a real VM".to_owned(),
            count => format!(", {count} real VMs"),
        };
        format!(
            "A collector, the agent of this machine ({}){real} and {} simulated guests. No agent was given a\n\
             certificate: the collector enrols each of them, as in a real fleet.\n",
            self.own_name(),
            self.stage.plan.guests.len()
        )
    }

    fn own_name(&self) -> String {
        format!("{}/{}", self.own.cluster, self.own.name)
    }

    fn fleet(&self) -> Result<String> {
        let fleet = self.stage.ctl()?.arg("vms").text(STAGE_TIMEOUT)?;
        ensure!(!fleet.is_empty(), "virtfleetctl vms printed nothing");
        let streams = self.stage.ctl()?.arg("mla").text(STAGE_TIMEOUT)?;
        Ok(format!(
            "$ virtfleetctl vms\n{fleet}\n$ virtfleetctl mla\n{streams}"
        ))
    }

    /// Waits until the metrics of both user clusters arrive.
    fn until_sent(&self) -> Result<()> {
        let clusters = &self.stage.plan.clusters;
        let mut samples: BTreeMap<String, u64> = BTreeMap::new();
        wait::eventually(STAGE_TIMEOUT, "the metrics of each user cluster arrive", || {
            for request in self.receiver.take()? {
                *samples.entry(request.path).or_default() += request.samples;
            }
            ensure!(samples.len() == clusters.len(), "{samples:?}");
            Ok(())
        })
    }

    fn hint(&self) -> Result<String> {
        let file = self.stage.manifests().join("infra/this-machine.yaml");
        let now = &self.stage.plan.hosts[self.own.host].name;
        let other = &self.stage.plan.hosts[0].name;
        let programs = bins::ctl()?;
        let programs = programs.parent().context("the folder of virtfleetctl")?;
        Ok(format!(
            "The web page: http://{}/\n\
             In another terminal, for more:\n  \
             export VIRTFLEET_SERVER=http://{} PATH={}:$PATH\n  \
             virtfleetctl vm {}\n  virtfleetctl enrolment list\n  virtfleetctl mla targets\n\
             To move this machine to another infra node, and see it here within two seconds:\n  \
             sed -i s/{now}/{other}/ {}\n\
             Ctrl-C ends the demo.\n",
            self.stage.api,
            self.stage.api,
            programs.display(),
            self.own_name(),
            file.display()
        ))
    }
}

/// Sends the metrics of each user cluster to the receiver by remote write.
fn send_metrics(stage: &mut Stage, receiver: &Counter) -> Result<()> {
    stage.set_settings(format!(
        "mla:\n  allowCIDRs: [127.0.0.0/8]\n  queue: {{ folder: {} }}\n  flush: {{ interval: 1s, sync: 1s }}\n",
        stage.path().join("queues").display()
    ));
    for cluster in &stage.plan.clusters {
        let name = format!("clusters/{cluster}/cluster.yaml");
        let text = fs::read_to_string(stage.manifests().join(&name))?;
        let url = format!("http://{}/{cluster}", receiver.address());
        let mla = format!("  mla: {{ remoteWrite: {{ url: \"{url}\" }} }}\n");
        stage.write_manifest(&name, &format!("{}\n{mla}", text.trim_end()))?;
    }
    Ok(())
}

fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
