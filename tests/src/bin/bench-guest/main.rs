//! Cost of the delivery and of the agent in a guest, each measured with and without in the same
//! run: `make bench-guest`.

mod disks;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use virtfleet_tests::{
    delivered::Delivery,
    guest::{Guest, Scene, Seed, Start, Suite, Vm},
    measure::Table,
    process::Launch,
    real::{self, From},
    scrape::Client,
    wait,
};

/// Measure real guests.
#[derive(Debug, Parser)]
#[command(name = "bench-guest")]
struct Arguments {
    /// Pairs of cold boots, with and without the delivery.
    #[arg(long, default_value_t = 3)]
    boots: usize,
    /// Restores from a snapshot.
    #[arg(long, default_value_t = 7)]
    restores: usize,
    /// Scrapes of a guest's agent; 0 omits the cost of the agent and secondary disks.
    #[arg(long, default_value_t = 200)]
    scrapes: u32,
    /// Measure secondary disks only.
    #[arg(long)]
    disks: bool,
    /// Also build an image from scratch, without the cache. Requires Debian's archive and takes
    /// minutes.
    #[arg(long)]
    image: bool,
}

fn seconds(of: Duration) -> String {
    format!("{:.2} s", of.as_secs_f64())
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Uptime that the guest's kernel reports.
fn uptime(machine: &Guest) -> Result<Duration> {
    let text = machine.run("cut -d' ' -f1 /proc/uptime")?;
    Ok(Duration::from_secs_f64(text.parse().context("/proc/uptime")?))
}

/// Time of the guest's second boot, in which nothing is left to deliver, until cloud-init is done.
fn second_boot(machine: &Guest) -> Result<Duration> {
    machine.power_off()?;
    let begun = Instant::now();
    machine.boot_to_agent()?;
    machine.wait_cloud_init()?;
    Ok(begun.elapsed())
}

/// Durations of a guest's boots.
struct Boots {
    first: Duration,
    second: Duration,
    /// Until the collector has pulled the agent for the first time.
    heard: Duration,
}

/// Cold boots without the delivery: until cloud-init is done.
fn plain_boots() -> Result<Boots> {
    let scene = Scene::open("bench-guest")?;
    let vm = Vm::new("plain").seed(Seed::no_cloud("plain"));
    let begun = Instant::now();
    let machine = scene.start(&vm, Start::Cold)?;
    machine.wait_cloud_init()?;
    let first = begun.elapsed();
    Ok(Boots {
        first,
        second: second_boot(&machine)?,
        heard: Duration::ZERO,
    })
}

/// Cold boots with the delivery: until cloud-init is done, and until the collector has pulled the
/// agent.
fn delivered_boots() -> Result<Boots> {
    let scene = Scene::open("bench-guest")?;
    let begun = Instant::now();
    let delivery = Delivery::begin(&scene, Suite::Trixie, Seed::no_cloud, From::Mirror, Start::Cold)?;
    delivery.machine.wait_cloud_init()?;
    let first = begun.elapsed();
    real::until_identified(&delivery.stage, &delivery.who)?;
    Ok(Boots {
        first,
        heard: begun.elapsed(),
        second: second_boot(&delivery.machine)?,
    })
}

/// CPU time of the agent's unit so far, as systemd accounts for it.
fn unit_cpu(machine: &Guest) -> Result<Duration> {
    let text = machine.run("cat /sys/fs/cgroup/system.slice/virtfleet-agent.service/cpu.stat")?;
    let micros = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))
        .context("no usage_usec")?;
    Ok(Duration::from_micros(micros.parse()?))
}

fn cost(table: &mut Table, scrapes: u32) -> Result<()> {
    let scene = Scene::open("bench-guest")?;
    let mut delivery = Delivery::begin(
        &scene,
        Suite::Trixie,
        Seed::no_cloud,
        From::Mirror,
        Start::BeforeCloudInit,
    )?;
    delivery.machine.wait_cloud_init()?;
    delivery.done()?;
    // From here on only this benchmark sends requests to the agent.
    drop(delivery.stage.take_collector()?);
    let machine = &delivery.machine;
    let rest = Duration::from_secs(30);
    let (from, began) = (unit_cpu(machine)?, uptime(machine)?);
    wait::measure(rest, || Ok(()))?;
    let (spent, took) = (
        unit_cpu(machine)?.saturating_sub(from),
        uptime(machine)?.saturating_sub(began),
    );
    let share = spent.as_secs_f64() / took.as_secs_f64() * 100.0;
    table.row(&["agent at rest, of one emulated CPU", &format!("{share:.3} %")]);
    let authority = &delivery.stage.authority;
    let tls = authority.client_config(&authority.collector()?)?;
    let mut client = Client::tls(delivery.who.address, tls, real::GUEST_TIMEOUT)?;
    client.get("/metrics")?.ok()?;
    let from = unit_cpu(machine)?;
    for _ in 0..scrapes {
        client.get("/metrics")?.ok()?;
    }
    let spent = unit_cpu(machine)?.saturating_sub(from);
    table.row(&[
        "agent's CPU a scrape over TLS, emulated",
        &format!("{:.2} ms", spent.as_secs_f64() * 1e3 / f64::from(scrapes)),
    ]);
    let resident = machine
        .run("awk '/^VmRSS/ { print $2 }' /proc/$(systemctl show -P MainPID virtfleet-agent)/status")?;
    let mib = resident.trim().parse::<f64>().context("VmRSS")? / 1024.0;
    table.row(&["agent resident in the guest", &format!("{mib:.1} MiB")]);
    Ok(())
}

fn image() -> Result<Duration> {
    let folder = tempfile::tempdir()?;
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/image.sh");
    let begun = Instant::now();
    Launch::new(script)
        .arg("trixie")
        .env("VIRTFLEET_GUESTS", folder.path())
        .text(Duration::from_mins(20))?;
    Ok(begun.elapsed())
}

fn cached_image() -> Result<Duration> {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/image.sh");
    let begun = Instant::now();
    Launch::new(script).arg("trixie").text(Duration::from_mins(1))?;
    Ok(begun.elapsed())
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut table = Table::new(&["figure (Debian 13)", "median"]);
    if arguments.disks {
        disks::measure(&mut table)?;
        print!("{}", table.render());
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.image {
        table.row(&["image, from nothing", &seconds(image()?)]);
    }
    table.row(&["image, cached", &seconds(cached_image()?)]);

    let mut restores = Vec::new();
    for _ in 0..arguments.restores {
        let scene = Scene::open("bench-guest")?;
        let begun = Instant::now();
        scene.start(&Vm::new("one"), Start::Booted)?.run("true")?;
        restores.push(begun.elapsed());
    }
    // The first start may have created the snapshot.
    table.row(&["restore to a command's answer", &seconds(median(restores))]);

    let mut pairs = Vec::new();
    for pair in 0..arguments.boots {
        // The order alternates, so that a busy moment affects both kinds.
        let first = (pair % 2 == 0).then(plain_boots).transpose()?;
        let with = delivered_boots()?;
        let without = match first {
            Some(without) => without,
            None => plain_boots()?,
        };
        pairs.push((without, with));
    }
    let of = |pick: fn(&(Boots, Boots)) -> Duration| seconds(median(pairs.iter().map(pick).collect()));
    let ratio = |pick: fn(&Boots) -> Duration| {
        let mut ratios: Vec<f64> = pairs
            .iter()
            .map(|(without, with)| pick(with).as_secs_f64() / pick(without).as_secs_f64())
            .collect();
        ratios.sort_by(f64::total_cmp);
        format!("{:.2}", ratios.get(ratios.len() / 2).copied().unwrap_or_default())
    };
    table.row(&[
        "first boot to cloud-init done, without",
        &of(|(without, _)| without.first),
    ]);
    table.row(&["  the same with the delivery", &of(|(_, with)| with.first)]);
    table.row(&["  ratio of a pair", &ratio(|boots| boots.first)]);
    table.row(&[
        "first boot to the agent up in the collector",
        &of(|(_, with)| with.heard),
    ]);
    table.row(&[
        "second boot to cloud-init done, without",
        &of(|(without, _)| without.second),
    ]);
    table.row(&["  the same, all delivered before", &of(|(_, with)| with.second)]);
    table.row(&["  ratio of a pair", &ratio(|boots| boots.second)]);
    if arguments.scrapes > 0 {
        cost(&mut table, arguments.scrapes)?;
        disks::measure(&mut table)?;
    }
    print!("{}", table.render());
    Ok(ExitCode::SUCCESS)
}
