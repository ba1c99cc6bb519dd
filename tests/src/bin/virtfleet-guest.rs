//! Interactive use of test guests: a command or a shell in a real guest within seconds, and the
//! contents of the cache.

use std::{
    io::{BufRead as _, IsTerminal as _, Write as _, stdin, stdout},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, Image, MIB, Network, Scene, Seed, Start, Suite, Vm, goldens},
    process::Launch,
};

/// Real guests under QEMU, restored from a snapshot or booted.
#[derive(Debug, Parser)]
#[command(name = "virtfleet-guest")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a command in a guest, print its output and exit with its exit code.
    Run {
        #[command(flatten)]
        wanted: Wanted,
        /// Script for the guest's /bin/sh.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Open a shell in a guest: its serial console on a terminal, otherwise one command per line.
    Shell {
        #[command(flatten)]
        wanted: Wanted,
    },
    /// List the root images.
    Images,
    /// Manage the snapshots.
    Goldens {
        #[command(subcommand)]
        verb: Option<Goldens>,
    },
}

#[derive(Debug, Subcommand)]
enum Goldens {
    /// List snapshots, most recently used first.
    List,
    /// Remove all snapshots.
    Prune,
    /// Create the snapshots from which a plain VM starts.
    Make {
        /// Debian release.
        #[arg(long, value_enum, default_value_t = SuiteName::Trixie)]
        suite: SuiteName,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SuiteName {
    Bookworm,
    Trixie,
}

impl SuiteName {
    fn suite(self) -> Suite {
        match self {
            Self::Bookworm => Suite::Bookworm,
            Self::Trixie => Suite::Trixie,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Boot {
    /// Boot from the firmware: half a minute without KVM.
    Cold,
    /// Restore a snapshot of a booted guest: one second.
    Restored,
    /// Restore a snapshot of the first boot, before cloud-init: ten seconds without KVM.
    BeforeCloudInit,
}

#[derive(Debug, clap::Args)]
struct Wanted {
    /// Debian release.
    #[arg(long, value_enum, default_value_t = SuiteName::Trixie)]
    suite: SuiteName,
    /// Start point.
    #[arg(long, value_enum, default_value_t = Boot::Restored)]
    boot: Boot,
    /// Add an empty disk of this size (64M, 1G); serials are `disk1` and so on. Repeatable.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    disk: Vec<u64>,
    /// Queue pairs of the NIC; more than one requires root and uses a tap device in a network
    /// namespace.
    #[arg(long, value_name = "N", default_value_t = 1)]
    nic_queues: u32,
    /// vCPUs.
    #[arg(long, value_name = "N", default_value_t = 2)]
    cpus: u32,
    /// File with user-data for cloud-init; the snapshot then belongs to this seed only.
    #[arg(long, value_name = "FILE")]
    user_data: Option<PathBuf>,
    /// Copy a file or folder of this machine to a path in the guest. Repeatable.
    #[arg(long, value_name = "HOST:GUEST", value_parser = pair)]
    file: Vec<(PathBuf, String)>,
}

fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let unit = match unit {
        "M" => MIB,
        "G" => GIB,
        _ => return Err("a size as 64M or 1G".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "a size as 64M or 1G".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

fn pair(text: &str) -> Result<(PathBuf, String), String> {
    match text.rsplit_once(':') {
        Some((host, guest)) if guest.starts_with('/') => Ok((PathBuf::from(host), guest.to_owned())),
        _ => Err("HOST:GUEST, and GUEST is an absolute path".to_owned()),
    }
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().verb {
        Verb::Run { wanted, command } => {
            let scene = Scene::open("by-hand")?;
            let guest = start(&scene, &wanted)?;
            let begun = Instant::now();
            let code = command_line(&guest, &command.join(" "))?;
            eprintln!(
                "guest: exit code {code} after {:.2} s",
                begun.elapsed().as_secs_f64()
            );
            Ok(ExitCode::from(code))
        }
        Verb::Shell { wanted } => shell(&wanted),
        Verb::Images => images(),
        Verb::Goldens { verb } => manage(verb.as_ref()),
    }
}

fn start(scene: &Scene, wanted: &Wanted) -> Result<Guest> {
    let mut vm = Vm::new("guest").suite(wanted.suite.suite());
    if wanted.cpus != 2 {
        vm = vm.cpus(wanted.cpus, wanted.cpus.max(4));
    }
    for (number, bytes) in (1..).zip(&wanted.disk) {
        vm = vm.disk(Disk::blank(format!("disk{number}"), *bytes).serial(format!("disk{number}")));
    }
    if wanted.nic_queues > 1 {
        vm = vm.network(Network::Tap).nic_queues(wanted.nic_queues);
    }
    let mut seed = Seed::no_cloud("stage");
    if wanted.nic_queues > 1 {
        seed = seed.network(
            "version: 2\nethernets:\n  nic:\n    match: { macaddress: \"02:00:00:00:00:01\" }\n    \
             addresses: [10.0.2.15/24]\n",
        );
    }
    if let Some(path) = &wanted.user_data {
        let content = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        seed = seed.user_data(content);
    }
    vm = vm.seed(seed);
    let from = match wanted.boot {
        Boot::Cold => Start::Cold,
        Boot::Restored => Start::Booted,
        Boot::BeforeCloudInit => Start::BeforeCloudInit,
    };
    let guest = scene.start(&vm, from)?;
    if wanted.boot != Boot::Restored {
        let begun = Instant::now();
        guest.wait_cloud_init()?;
        guest.wait_agent(std::time::Duration::from_mins(2))?;
        eprintln!(
            "guest: cloud-init is done after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
    for (host, to) in &wanted.file {
        copy(scene, &guest, host, to)?;
    }
    Ok(guest)
}

/// Copies a folder directly; a file through a temporary folder.
fn copy(scene: &Scene, guest: &Guest, host: &PathBuf, to: &str) -> Result<()> {
    let begun = Instant::now();
    if host.is_dir() {
        guest.copy_in(host, to)?;
    } else {
        let name = to.rsplit('/').next().unwrap_or_default();
        ensure!(
            !name.is_empty(),
            "{to}: a file's place in the guest ends with its name"
        );
        let folder = scene.path().join("files");
        std::fs::create_dir_all(&folder)?;
        std::fs::copy(host, folder.join(name)).with_context(|| format!("copy {}", host.display()))?;
        let parent = to.rsplit_once('/').map_or("/", |(parent, _)| parent);
        guest.copy_in(&folder, if parent.is_empty() { "/" } else { parent })?;
        std::fs::remove_dir_all(&folder)?;
    }
    eprintln!(
        "guest: {to} is there after {:.2} s",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs the script, prints both streams and returns the exit code.
fn command_line(guest: &Guest, script: &str) -> Result<u8> {
    let output = guest.sh_within(script, std::time::Duration::from_hours(1))?;
    stdout().write_all(output.stdout.as_bytes())?;
    std::io::stderr().write_all(output.stderr.as_bytes())?;
    Ok(u8::try_from(output.code).unwrap_or(255))
}

fn shell(wanted: &Wanted) -> Result<ExitCode> {
    let scene = Scene::open("by-hand")?;
    let guest = start(&scene, wanted)?;
    if stdin().is_terminal() {
        // The image has no login on the console, because it would write to the console while tests
        // read it.
        guest.run(
            "systemd-run --quiet -p StandardInput=tty -p StandardOutput=tty -p StandardError=tty -p TTYPath=/dev/ttyS0 \
             --setenv=HOME=/root --setenv=TERM=linux --working-directory=/root /bin/bash -i",
        )?;
        eprintln!("guest: the serial console; Ctrl-] ends the guest");
        let socket = format!("UNIX-CONNECT:{}", guest.console_socket().display());
        let status = Launch::new("socat")
            .args(["STDIO,raw,echo=0,escape=0x1d", &socket])
            .attached()?;
        ensure!(status.success(), "socat: {status}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut last = 0;
    for line in stdin().lock().lines() {
        last = command_line(&guest, &line?)?;
    }
    Ok(ExitCode::from(last))
}

const SUITES: [Suite; 2] = [Suite::Bookworm, Suite::Trixie];

fn images() -> Result<ExitCode> {
    let mut found = false;
    for suite in SUITES {
        match Image::find(suite) {
            Ok(image) => {
                found = true;
                let (kernel, cloud_init) = (image.fact("KERNEL")?, image.fact("CLOUD_INIT")?);
                println!(
                    "{}\t{kernel}\tcloud-init {cloud_init}\t{}",
                    suite.name(),
                    image.folder().display()
                );
            }
            Err(error) => eprintln!("{error:#}"),
        }
    }
    if !found {
        bail!("there is no image");
    }
    Ok(ExitCode::SUCCESS)
}

fn manage(verb: Option<&Goldens>) -> Result<ExitCode> {
    if let Some(Goldens::Make { suite }) = verb {
        let scene = Scene::open("by-hand")?;
        let vm = |name: &str| Vm::new(name).suite(suite.suite());
        scene.start(&vm("booted"), Start::Booted)?.cut_power();
        scene.start(&vm("first"), Start::BeforeCloudInit)?.cut_power();
        let drive = vm("drive").seed(Seed::config_drive("stage"));
        scene.start(&drive, Start::BeforeCloudInit)?.cut_power();
        return Ok(ExitCode::SUCCESS);
    }
    // Holding the lock of guests prevents others from restoring a snapshot meanwhile.
    let _scene = Scene::open("by-hand")?;
    for suite in SUITES {
        let Ok(image) = Image::find(suite) else { continue };
        for golden in goldens(&image)? {
            let age = golden.used().elapsed().unwrap_or_default().as_secs() / 60;
            println!(
                "{}\t{}\t{} MiB\tused {age} min ago",
                suite.name(),
                golden.name(),
                golden.size() / MIB
            );
            if let Some(Goldens::Prune) = verb {
                golden.remove()?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
