//! A running machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    Options, Root, agent,
    program::{BOOT, END},
};
use crate::{
    dns::NetNs,
    process::{AtEnd, Launch, Process},
    scratch,
    wait::{eventually, journal_script, until},
};

/// Timeout of a boot on a busy machine.
const BOOTED: Duration = Duration::from_mins(3);
/// Timeout of a command.
const COMMAND: Duration = Duration::from_mins(3);
const SOON: Duration = Duration::from_secs(30);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The machine. Everything ends when it is dropped, and when this process ends without a drop.
pub struct Machine {
    // In drop order.
    container: Option<Container>,
    _end: AtEnd,
    folder: PathBuf,
    root: Root,
    group: String,
    network: String,
    /// The links of its network namespace before the machine starts.
    links: Vec<String>,
    options: Options,
}

/// The processes of one boot.
struct Container {
    process: Process,
    /// The container's first process, as seen from this process.
    first: u32,
    /// The first process of the namespace around systemd-nspawn: when it ends, all others end.
    outer: u32,
}

impl Machine {
    /// Boots the machine for the first time and waits until systemd has finished the boot.
    pub fn boot(root: &Root, network: &NetNs, options: Options) -> Result<Self> {
        let mut own = Self::prepare(root, network, options)?;
        own.start(true)?;
        own.booted()?;
        Ok(own)
    }

    /// As [`Machine::boot`], but waits only for the first process.
    pub fn start_boot(root: &Root, network: &NetNs, options: Options) -> Result<Self> {
        let mut own = Self::prepare(root, network, options)?;
        own.start(true)?;
        Ok(own)
    }

    fn prepare(root: &Root, network: &NetNs, options: Options) -> Result<Self> {
        let options = if options.agent {
            agent::install(options)?
        } else {
            options
        };
        let folder = scratch::marked().context("a folder for the machine")?.keep();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let group = format!("virtfleet-{}-machine{number}", process::id());
        let folder_text = folder.display().to_string();
        let end = AtEnd::new(END, [&group, &folder_text])?;
        let own = Self {
            container: None,
            _end: end,
            folder,
            root: root.clone(),
            group,
            network: network.name().to_owned(),
            links: links(network.name())?,
            options,
        };
        for part in ["upper", "work", "root"] {
            let path = own.folder.join(part);
            fs::create_dir(&path).with_context(|| path.display().to_string())?;
        }
        own.write_upper()?;
        Ok(own)
    }

    /// Writes the files of the options into the upper layer of the overlay.
    fn write_upper(&self) -> Result<()> {
        let upper = self.folder.join("upper");
        let write = |path: &str, text: &str| {
            let file = upper.join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap_or(&upper))?;
            fs::write(&file, text).with_context(|| file.display().to_string())
        };
        // With a machine id this is not a first boot, in which systemd enables all units and
        // prompts on the console.
        write("/etc/machine-id", &format!("{:032x}\n", fastrand::u128(1..)))?;
        write("/etc/hostname", "machine\n")?;
        write("/etc/cloud/cloud-init.disabled", "")?;
        write("/etc/fstab", "")?;
        // A persistent journal is readable from outside and survives a power cut.
        write(
            "/etc/systemd/journald.conf.d/50-test.conf",
            "[Journal]\nStorage=persistent\nSyncIntervalSec=1s\nRateLimitIntervalSec=0\n",
        )?;
        for (path, text) in &self.options.files {
            write(path, text)?;
        }
        Ok(())
    }

    fn start(&mut self, first_boot: bool) -> Result<()> {
        let mut launch = Launch::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "--pid",
                "--fork",
                "--kill-child=KILL",
                "--mount-proc",
                "--",
            ])
            .args(["/bin/sh", "-c", BOOT, "machine"])
            .arg(&self.folder)
            .arg(self.root.path())
            .arg(&self.group)
            .arg(format!("/run/netns/{}", self.network))
            .arg(if first_boot { "first" } else { "again" })
            .arg(self.options.enabled.join(" "))
            .arg(self.options.masked.join(" "));
        for (name, path) in &self.options.programs {
            let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
            launch = launch.arg(format!("--bind-ro={}:/usr/bin/{name}", path.display()));
        }
        // Started in the network namespace, because sysfs shows the links of the namespace in which
        // it is mounted.
        let mut process = launch.in_namespace(&self.network).tied().start(&self.folder)?;
        let id = process.id();
        let (outer, first) = process.wait_for(BOOTED, "the container's first process", |_| {
            let outer = *children(id)?.first().context("no namespace yet")?;
            Ok((outer, init_below(outer)?))
        })?;
        self.container = Some(Container {
            process,
            first,
            outer,
        });
        Ok(())
    }

    fn container(&self) -> Result<&Container> {
        self.container.as_ref().context("the machine is off")
    }

    /// Waits until systemd has finished the boot, with or without failed units.
    pub fn booted(&self) -> Result<()> {
        let state = eventually(BOOTED, "the end of the boot", || {
            let output = self.launch("systemctl")?.args(["is-system-running", "--wait"]);
            let output = output.output(BOOTED)?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            match text.as_str() {
                "running" | "degraded" | "maintenance" | "stopping" => Ok(text),
                _ => bail!("{text:?} {}", String::from_utf8_lossy(&output.stderr)),
            }
        });
        match state {
            Ok(state) if state == "running" || state == "degraded" => Ok(()),
            Ok(state) => bail!("the machine's state is {state}: {}", self.console()),
            Err(error) => Err(error.context(self.console())),
        }
    }

    /// The folder of its files, from outside.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Output of systemd-nspawn and the console since the start.
    pub fn console(&self) -> String {
        self.container
            .as_ref()
            .map_or_else(String::new, |container| container.process.log())
    }

    /// The process id of its first process, from outside.
    pub fn first(&self) -> Result<u32> {
        Ok(self.container()?.first)
    }

    /// Prepares a program to run in the machine, as root, outside its control groups.
    pub fn launch(&self, program: &str) -> Result<Launch> {
        let first = self.container()?.first.to_string();
        Ok(Launch::new("nsenter")
            .args([
                "--target", &first, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root",
            ])
            .args(["--", "/usr/bin/env", "-C", "/", "-i"])
            .args([
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/root",
                "LANG=C.UTF-8",
            ])
            .arg(program))
    }

    /// Runs a shell script in the machine; returns its exit code and the output of both streams.
    pub fn try_sh(&self, script: &str) -> Result<(i32, String)> {
        self.launch("/bin/sh")?.args(["-c", script]).said(COMMAND)
    }

    /// As [`Machine::try_sh`], but the script must succeed.
    pub fn sh(&self, script: &str) -> Result<String> {
        let (code, text) = self.try_sh(script)?;
        ensure!(code == 0, "{script}: {code}: {text}");
        Ok(text)
    }

    /// Repeats a script until it succeeds, and returns its output.
    pub fn until_sh(&self, deadline: Duration, script: &str) -> Result<String> {
        eventually(deadline, script, || self.sh(script))
    }

    /// Writes a file; replaces whatever is there, including a link.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let script = "set -e; mkdir -p \"$(dirname \"$1\")\"; rm -f \"$1\"; cat >\"$1\"";
        let launch = self.launch("/bin/sh")?.args(["-c", script, "write", path]);
        launch.stdin(text).text(SOON).map(drop)
    }

    /// Reads a file; follows links.
    pub fn read(&self, path: &str) -> Result<String> {
        self.launch("cat")?.args(["--", path]).text(SOON)
    }

    /// The journal of a unit since the boot, messages only.
    pub fn journal(&self, unit: &str) -> Result<String> {
        self.sh(&journal_script(&format!("--output=cat --unit={unit}")))
    }

    /// Requires that a unit is active. The error quotes its journal.
    pub fn is_active(&self, unit: &str) -> Result<()> {
        let (code, state) = self.try_sh(&format!("systemctl is-active {unit}"))?;
        if code == 0 {
            return Ok(());
        }
        let journal = self.journal(unit)?;
        bail!("{unit} is {}; its journal:\n{journal}", state.trim());
    }

    /// Shuts the machine down in order, and boots it again with its overlay.
    pub fn reboot(&mut self) -> Result<()> {
        self.power_off()?;
        self.power_on()
    }

    /// Shuts the machine down in order.
    pub fn power_off(&mut self) -> Result<()> {
        // The bus may end before the answer.
        self.try_sh("systemctl poweroff")?;
        let container = self.container.as_mut().context("the machine is off")?;
        container.process.wait(BOOTED)?;
        self.kill()
    }

    /// Boots it again with its overlay, and waits until systemd has finished the boot.
    pub fn power_on(&mut self) -> Result<()> {
        self.start_again()?;
        self.booted()
    }

    /// As [`Machine::power_on`], but waits only for the first process.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.container.is_none(), "the machine runs");
        self.start(false)
    }

    /// Kills all its processes at once, as a power cut does. (Written and unsynced data is kept,
    /// because the kernel is the host's.) Restores the links to their state before the machine
    /// started, without addresses.
    pub fn kill(&mut self) -> Result<()> {
        let container = self.container.take().context("the machine is off")?;
        let outer = PathBuf::from(format!("/proc/{}", container.outer));
        drop(container);
        until(SOON, "the end of all its processes", || !outer.exists())?;
        for link in links(&self.network)? {
            let ip = |words: &[&str]| {
                let launch = Launch::new("ip").args(["-n", &self.network]);
                launch.args(words).text(SOON)
            };
            if !self.links.contains(&link) {
                // The other end of a veth pair may have been removed with the first.
                drop(ip(&["link", "delete", &link]));
            } else if link != "lo" {
                ip(&["link", "set", &link, "down"])?;
                ip(&["address", "flush", "dev", &link])?;
            }
        }
        Ok(())
    }
}

/// The links of a network namespace.
fn links(network: &str) -> Result<Vec<String>> {
    let text = Launch::new("ip")
        .args(["-n", network, "-brief", "link"])
        .text(SOON)?;
    let names = text
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().next());
    Ok(names
        .filter_map(|name| name.split('@').next())
        .map(str::to_owned)
        .collect())
}

fn children(id: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{id}/task/{id}/children");
    let text = fs::read_to_string(&path).context(path)?;
    Ok(text
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect())
}

/// The container's first process below a process of the outer namespace: it has process id 1 in an
/// inner PID namespace and already runs systemd.
fn init_below(outer: u32) -> Result<u32> {
    let mut open = children(outer)?;
    while let Some(id) = open.pop() {
        let folder = PathBuf::from(format!("/proc/{id}"));
        if is_init(&folder) {
            return Ok(id);
        }
        // A process that has just ended has no children any more.
        open.extend(children(id).unwrap_or_default());
    }
    bail!("not yet")
}

fn is_init(folder: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    read("comm").trim() == "systemd"
        && read("status")
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))
            .is_some_and(|ids| ids.split_ascii_whitespace().last() == Some("1"))
}
