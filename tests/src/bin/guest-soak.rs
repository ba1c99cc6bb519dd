//! Cuts the power of first boots at seeded moments and says what became of each: `make guest-soak N=20`.
//!
//! A cut is survived when the boots that follow end where an undisturbed first boot does, without anybody's help.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;
use virtfleet_tests::{
    delivered::Delivery,
    guest::{Scene, Seed, Start, Suite},
    real::{self, From},
    sim::Random,
    wait,
};

/// Cut the power of first boots at seeded moments.
#[derive(Debug, Parser)]
#[command(name = "guest-soak")]
struct Arguments {
    /// How many cuts.
    #[arg(long, default_value_t = 20)]
    cuts: u64,
    /// The first seed; each cut has the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// From cloud-init's first stage on, a first boot takes about so many seconds under emulation.
fn length(suite: Suite) -> f64 {
    match suite {
        Suite::Bookworm => 18.0,
        Suite::Trixie => 9.0,
    }
}

/// One cut; the last line of the console before it.
fn cut(seed: u64) -> Result<(String, Result<()>)> {
    let suite = if seed.is_multiple_of(2) {
        Suite::Bookworm
    } else {
        Suite::Trixie
    };
    let after = Random::new(seed).between(0.2, length(suite));
    let scene = Scene::open("guest-soak")?;
    let delivery = Delivery::begin(
        &scene,
        suite,
        Seed::no_cloud,
        From::Mirror,
        Start::BeforeCloudInit,
    )?;
    wait::measure(Duration::from_secs_f64(after), || Ok(()))?;
    let machine = &delivery.machine;
    let console = machine.console();
    let last = console.lines().rfind(|line| !line.trim().is_empty());
    let what = format!(
        "{seed:>4}  {:<8}  {after:>5.1} s  {}",
        suite.name(),
        last.unwrap_or("").trim()
    );
    machine.cut_power();
    machine.boot()?;
    let outcome = delivery.done().and_then(|(_, state)| real::complete(&state));
    if outcome.is_err() {
        let kept = scene.keep()?;
        eprintln!("seed {seed}: logs in {}", kept.display());
        let cloud = machine.sh(
            "cloud-init status --long; find /var/lib/cloud /etc/systemd/network /etc/netplan -type f -size 0; \
             cat /var/lib/virtfleet/delivery/repairs; networkctl list --no-legend",
        );
        if let Ok(cloud) = cloud {
            eprintln!("{}", cloud.stdout);
        }
    }
    Ok((what, outcome))
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut lost = 0;
    for seed in arguments.seed..arguments.seed + arguments.cuts {
        let (what, outcome) = cut(seed)?;
        let word = match &outcome {
            Ok(()) => "survived".to_owned(),
            Err(error) => format!("LOST: {error:#}"),
        };
        let word = word.lines().next().unwrap_or_default();
        println!("{what}\n      {word}");
        lost += u64::from(outcome.is_err());
    }
    println!("{} cuts, {lost} not survived", arguments.cuts);
    Ok(if lost == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
