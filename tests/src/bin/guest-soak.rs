//! Cuts the power of first boots at seeded moments and reports the result of each cut: `make
//! guest-soak N=20`.
//!
//! A cut is survived if the following boots reach the same end state as an undisturbed first boot,
//! without intervention. One kind of cut cannot be survived by any user-data; the files that it
//! leaves on the disk identify it (docs/delivery.md).

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
    /// Number of cuts.
    #[arg(long, default_value_t = 20)]
    cuts: u64,
    /// The first seed; each further cut uses the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Approximate duration of a first boot under emulation in seconds, from cloud-init's first stage
/// on.
fn length(suite: Suite) -> f64 {
    match suite {
        Suite::Bookworm => 18.0,
        Suite::Trixie => 9.0,
    }
}

/// Result of a cut.
enum Outcome {
    /// The guest reached the end state of an undisturbed first boot, so long after power-on.
    Survived(Duration),
    /// In its first stage, cloud-init reads its record of the hostname and exits if it is not JSON,
    /// at every boot. Nothing that cloud-init delivers can run any more.
    OnlyBaked,
    Lost(anyhow::Error),
}

/// Succeeds if the cut left cloud-init's record of the hostname empty and no file of the delivery
/// on the disk.
const NOTHING_RUNS: &str = "cd /var/lib; test -e cloud/data/set-hostname -a ! -s cloud/data/set-hostname -a ! -e virtfleet/delivery/deliver";

/// Boots the guest after a cut until the result is known.
fn outcome(delivery: &Delivery) -> Outcome {
    let begun = Instant::now();
    let machine = &delivery.machine;
    if machine.wait_agent(real::GUEST_TIMEOUT).is_ok()
        && machine.sh(NOTHING_RUNS).is_ok_and(|found| found.code == 0)
        && eventually(real::GUEST_TIMEOUT, "cloud-init to fail", || broken(machine)).is_ok()
    {
        return Outcome::OnlyBaked;
    }
    match delivery.done().and_then(|(_, state)| real::complete(&state)) {
        Ok(()) => Outcome::Survived(begun.elapsed()),
        Err(error) => Outcome::Lost(error),
    }
}

/// Checks that cloud-init failed and that its first stage reports the empty record.
fn broken(machine: &Guest) -> Result<()> {
    machine
        .run("cloud-init status --long | grep -q 'status: error' && cloud-init status --long | grep -q 'Expecting value'")
        .map(drop)
}

/// Performs one cut; returns the last console line before it, and the result.
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
