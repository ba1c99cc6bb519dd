//! Cuts the power of first boots at seeded moments and says what became of each: `make guest-soak N=20`.
//!
//! A cut is survived when the boots that follow end where an undisturbed first boot does, without anybody's help. The one cut
//! that no user-data can survive is told apart by what it left on the disk: docs/delivery.md.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Parser;
use virtfleet_tests::{
    delivered::Delivery,
    guest::{Guest, Scene, Seed, Start, Suite},
    real::{self, From},
    sim::Random,
    wait::{self, eventually},
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

/// What became of a cut.
enum Outcome {
    /// The end state of an undisturbed first boot, so long after the power came back.
    Survived(Duration),
    /// cloud-init reads its own record of the hostname in its first stage and ends when that is no JSON, at every boot:
    /// nothing that it delivers can run any more.
    OnlyBaked,
    Lost(anyhow::Error),
}

/// Succeeds when the cut left cloud-init's record of the hostname empty and nothing of the delivery on the disk.
const NOTHING_RUNS: &str = "cd /var/lib; test -e cloud/data/set-hostname -a ! -s cloud/data/set-hostname -a ! -e virtfleet/delivery/deliver";

/// What the boots after a cut lead to.
fn outcome(delivery: &Delivery) -> Outcome {
    let begun = Instant::now();
    let machine = &delivery.machine;
    if machine.wait_agent(real::GUEST_PATIENCE).is_ok()
        && machine.sh(NOTHING_RUNS).is_ok_and(|found| found.code == 0)
        && eventually(real::GUEST_PATIENCE, "cloud-init to fail", || broken(machine)).is_ok()
    {
        return Outcome::OnlyBaked;
    }
    match delivery.done().and_then(|(_, state)| real::complete(&state)) {
        Ok(()) => Outcome::Survived(begun.elapsed()),
        Err(error) => Outcome::Lost(error),
    }
}

/// cloud-init has ended in an error, and its first stage says that it was the empty record.
fn broken(machine: &Guest) -> Result<()> {
    machine
        .run("cloud-init status --long | grep -q 'status: error' && cloud-init status --long | grep -q 'Expecting value'")
        .map(drop)
}

/// One cut; the last line of the console before it.
fn cut(seed: u64) -> Result<(String, Outcome)> {
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
    let outcome = outcome(&delivery);
    if matches!(outcome, Outcome::Lost(_)) {
        let kept = scene.keep()?;
        eprintln!("seed {seed}: logs in {}", kept.display());
        let cloud = machine.sh(
            "cloud-init status --long; find /var/lib/cloud /etc/systemd/network /etc/netplan -type f -size 0; \
             od -c /var/lib/cloud/data/set-hostname | head -n 3; cat /var/lib/virtfleet/delivery/repairs; \
             networkctl list --no-legend",
        );
        if let Ok(cloud) = cloud {
            eprintln!("{}", cloud.stdout);
        }
    }
    Ok((what, outcome))
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let (mut survived, mut baked, mut lost) = (0, 0, 0);
    for seed in arguments.seed..arguments.seed + arguments.cuts {
        let (what, outcome) = cut(seed)?;
        println!("{what}");
        match outcome {
            Outcome::Survived(after) => {
                survived += 1;
                println!(
                    "      survived, {:.0} s after the power came back",
                    after.as_secs_f64()
                );
            }
            Outcome::OnlyBaked => {
                baked += 1;
                println!(
                    "      only a baked-in agent survives it: cloud-init's set-hostname record was not written whole"
                );
            }
            Outcome::Lost(error) => {
                lost += 1;
                let error = format!("{error:#}");
                println!("      LOST: {}", error.lines().next().unwrap_or_default());
            }
        }
    }
    println!(
        "{} cuts: {survived} survived, {baked} that only a baked-in agent survives, {lost} lost",
        arguments.cuts
    );
    Ok(if lost == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
