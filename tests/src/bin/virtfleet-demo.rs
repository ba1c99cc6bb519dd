//! Demonstration on real input: an agent on this machine, simulated guests, a collector on a folder
//! of manifests, and the result on the terminal. Needs no cluster and no root, and removes all its
//! files.

use std::{
    io::{IsTerminal as _, Write as _, stdout},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use virtfleet_tests::{
    sim::{self, Guest, Options},
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
    let mut stage = Stage::new(options)?;
    let own = this_machine::as_guest(&stage)?;
    let host = &stage.plan.hosts[own.host].name.clone();
    stage.write_manifest("infra/this-machine.yaml", &sim::vmi(&own, host))?;
    stage.write_manifest(
        &format!("clusters/{}/this-machine.yaml", own.cluster),
        &sim::user_node(&own, &stage.plan.hosts[own.host], &stage.plan.region),
    )?;
    stage.start_agent(&own, "")?;
    stage.start_collector(Beat {
        interval: Duration::from_secs(2),
        timeout: Duration::from_secs(2),
    })?;
    if arguments.once {
        once(&stage, &own)
    } else {
        live(&stage, &own)
    }
}

fn once(stage: &Stage, own: &Guest) -> Result<()> {
    let all = stage.plan.guests.len() + 1;
    let answered = stage.until_up(all);
    print(&screen(stage, own)?)?;
    answered.with_context(|| format!("not all of the {all} VMs have answered"))?;
    print(&format!("\nall {all} VMs answered\n"))
}

fn live(stage: &Stage, own: &Guest) -> Result<()> {
    let terminal = stdout().is_terminal();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut shown = String::new();
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate()).context("cannot listen to signals")?;
        let mut beat = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = term.recv() => break,
                ended = tokio::signal::ctrl_c() => { ended?; break }
                _ = beat.tick() => {
                    let now = screen(stage, own)? + &hint(stage, own);
                    if terminal {
                        // Cursor home; clear the rest of each line and everything below.
                        print(&format!("\x1b[H{}\x1b[J", now.replace('\n', "\x1b[K\n")))?;
                    } else if now != shown {
                        print(&now)?;
                    }
                    shown = now;
                }
            }
        }
        print("\nending: agent, collector, guests and their folder go\n")
    })
}

/// The fleet overview, and this machine in detail.
fn screen(stage: &Stage, own: &Guest) -> Result<String> {
    let name = format!("{}/{}", own.cluster, own.name);
    let fleet = stage.ctl()?.args(["vms", "-o", "wide"]).text(STAGE_TIMEOUT)?;
    let detail = stage.ctl()?.args(["vm", &name]).text(STAGE_TIMEOUT)?;
    ensure!(!fleet.is_empty(), "virtfleetctl vms printed nothing");
    Ok(format!(
        "$ virtfleetctl vms -o wide\n{fleet}\n$ virtfleetctl vm {name}\n{detail}"
    ))
}

fn hint(stage: &Stage, own: &Guest) -> String {
    let file = stage.manifests().join("infra/this-machine.yaml");
    let now = &stage.plan.hosts[own.host].name;
    let other = &stage.plan.hosts[0].name;
    format!(
        "\nThe collector serves http://{}. Move this machine to another infra node, and see it within two seconds:\n  \
         sed -i s/{now}/{other}/ {}\nCtrl-C ends it all.\n",
        stage.api,
        file.display()
    )
}

fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
