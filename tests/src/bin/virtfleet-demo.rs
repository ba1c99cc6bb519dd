//! Demonstration on real input: an agent on this machine, simulated guests, a collector on a folder
//! of manifests that enrols them all, and the result on the terminal. Needs no cluster and no root,
//! and removes all its files.

use std::{
    io::{IsTerminal as _, Write as _, stdout},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use virtfleet_tests::{
    bins,
    sim::{
        self, Guest, Options,
        enrol::{AgentHost, AgentSpec},
    },
    stage::{Beat, STAGE_TIMEOUT, Stage},
    this_machine,
};

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
    let demo = Demo::start(options)?;
    if arguments.once { demo.once() } else { demo.live() }
}

/// The running fleet.
struct Demo {
    // Ends before the stage, whose folder the agents read.
    _guests: AgentHost,
    stage: Stage,
    own: Guest,
}

impl Demo {
    fn start(options: Options) -> Result<Self> {
        let mut stage = Stage::enrolling(options, "24h")?;
        let own = this_machine::as_guest(&stage)?;
        let host = &stage.plan.hosts[own.host];
        stage.write_manifest("infra/this-machine.yaml", &this_machine::vmi(&own, &host.name))?;
        stage.write_manifest(
            &format!("clusters/{}/this-machine.yaml", own.cluster),
            &sim::user_node(&own, host, &stage.plan.region),
        )?;
        // Its first start creates the authority that the agents trust.
        stage.start_collector(Beat {
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(2),
        })?;
        stage.start_enrolling_agent(&own)?;
        let guests = stage.agent_host()?;
        for guest in &stage.plan.guests {
            guests.run(AgentSpec::honest(guest)?)?;
        }
        Ok(Self {
            _guests: guests,
            stage,
            own,
        })
    }

    fn once(&self) -> Result<()> {
        let all = self.stage.plan.guests.len() + 1;
        let answered = self.stage.until_up(all);
        let name = self.own_name();
        let detail = self.stage.ctl()?.args(["vm", &name]).text(STAGE_TIMEOUT)?;
        print(&format!(
            "{}\n{}\n$ virtfleetctl vm {name}\n{detail}",
            self.about(),
            self.fleet()?
        ))?;
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
        let terminal = stdout().is_terminal();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut shown = String::new();
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
                        let fleet = self.fleet()?;
                        if terminal {
                            let now = format!("{}\n{fleet}\n{}", self.about(), self.hint()?);
                            // Cursor home; clear the rest of each line and everything below.
                            print(&format!("\x1b[H{}\x1b[J", now.replace('\n', "\x1b[K\n")))?;
                        } else if fleet != shown {
                            print(&fleet)?;
                        }
                        shown = fleet;
                    }
                }
            }
            print("\nstopping the collector and the agents, and removing their files\n")
        })
    }

    /// What the reader sees.
    fn about(&self) -> String {
        format!(
            "A collector, the agent of this machine ({}) and {} simulated guests. No agent was given a\n\
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
        Ok(format!("$ virtfleetctl vms\n{fleet}"))
    }

    fn hint(&self) -> Result<String> {
        let file = self.stage.manifests().join("infra/this-machine.yaml");
        let now = &self.stage.plan.hosts[self.own.host].name;
        let other = &self.stage.plan.hosts[0].name;
        let programs = bins::ctl()?;
        let programs = programs.parent().context("the folder of virtfleetctl")?;
        Ok(format!(
            "In another terminal, for more:\n  \
             export VIRTFLEET_SERVER=http://{} PATH={}:$PATH\n  \
             virtfleetctl vm {}\n  virtfleetctl enrolment list\n\
             To move this machine to another infra node, and see it here within two seconds:\n  \
             sed -i s/{now}/{other}/ {}\n\
             Ctrl-C ends the demo.\n",
            self.stage.api,
            programs.display(),
            self.own_name(),
            file.display()
        ))
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
