//! The agent and node_exporter, with the same collectors and the same settings, over plain HTTP on
//! loopback.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use virtfleet_agent_metrics::{COLLECTORS, DefaultOn};

use super::{Page, Round};
use crate::{
    bins, parts,
    pki::Files,
    ports,
    process::{Launch, Process},
    roots,
    scrape::{Answer, Client},
};

/// Timeout of a start or an answer.
pub const SOON: Duration = Duration::from_secs(30);
/// Excluded mount points: node_exporter's upstream default, which Debian's build extends.
pub const MOUNT_POINTS: &str =
    "^/(dev|proc|run/credentials/.+|sys|var/lib/docker/.+|var/lib/containers/storage/.+)($|/)";
/// node_exporter reads these values through netlink by default; with roots it must read files.
const FILES: [&str; 1] = ["--no-collector.netdev.netlink"];
/// Sysctls that every Linux has.
const SYSCTLS: [&str; 3] = [
    "vm.swappiness",
    "kernel.pid_max",
    "net.ipv4.tcp_rmem:min,default,max",
];
const SYSCTL_INFO: &str = "kernel.core_pattern";
/// Flags of node_exporter that export more, and the agent's equivalent settings.
const WIDE: [&str; 5] = [
    "--collector.stat.softirq",
    "--collector.netdev.address-info",
    "--collector.systemd.enable-restarts-metrics",
    "--collector.systemd.enable-start-time-metrics",
    "--collector.netclass.ignore-invalid-speed",
];
const WIDE_SETTINGS: &str = "  stat: { softirq: true }
  netdev: { addressInfo: true }
  systemd: { restarts: true, startTimes: true }
  netclass: { ignoreInvalidSpeed: true }
";
/// Flags that change names and labels from those that dashboards use, and the agent's equivalent
/// settings.
const RENAMED: [&str; 2] = [
    "--collector.netdev.enable-detailed-metrics",
    "--collector.ipvs.backend-labels=proto,remote_address,local_port",
];
const RENAMED_SETTINGS: &str = "  ipvs: { backendLabels: \"proto,remote_address,local_port\" }
  netdev: { detailedMetrics: true }
";
/// node_exporter panics if a device of `/proc/net/dev` is missing in sysfs, as in roots.
const ALIASES: &str = "--collector.netdev.label-ifalias";
const RENAMED_SETTINGS_HERE: &str = "  ipvs: { backendLabels: \"proto,remote_address,local_port\" }
  netdev: { detailedMetrics: true, labelIfalias: true }
";
/// As [`ALIASES`], for the `cpu` collector, which fails without `/proc/cpuinfo`.
const CPU_INFO: [&str; 3] = [
    "--collector.cpu.info",
    "--collector.cpu.info.flags-include=^(aes|avx.?|fpu)$",
    "--collector.cpu.info.bugs-include=.*",
];
const CPU_INFO_SETTINGS: &str =
    "  cpu: { info: true, flagsInclude: \"^(aes|avx.?|fpu)$\", bugsInclude: \".*\" }\n";

/// Settings of both programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The defaults.
    Plain,
    /// All optional exports are enabled.
    Wide,
    /// All settings that change names and labels are enabled.
    Renamed,
}

/// Setup of both programs.
#[derive(Debug, Clone)]
pub struct Serve {
    /// The collectors, by name.
    pub collectors: Vec<&'static str>,
    /// The folder with `proc`, `sys`, `rootfs` and `udev`; without it, this machine.
    pub roots: Option<PathBuf>,
    /// The settings.
    pub extent: Extent,
    /// Whether both run as the user `nobody`: as root, node_exporter reads values that an
    /// unprivileged agent gets another way.
    pub nobody: bool,
}

impl Serve {
    /// All collectors that both programs have, as the user `nobody` where possible.
    pub fn everything(roots: Option<&Path>, extent: Extent) -> Result<Self> {
        let theirs = theirs()?;
        let collectors = COLLECTORS.iter().map(|entry| entry.name);
        Ok(Self {
            collectors: collectors.filter(|name| theirs.contains_key(*name)).collect(),
            roots: roots.map(Path::to_owned),
            extent,
            nobody: nix::unistd::geteuid().is_root(),
        })
    }

    /// The collectors that both enable by default, and those of the profile `dashboards`, with
    /// default settings.
    pub fn defaults(roots: Option<&Path>) -> Result<Self> {
        let theirs = theirs()?;
        let wanted = COLLECTORS.iter().filter(|entry| match theirs.get(entry.name) {
            Some(on) => match entry.default_on {
                DefaultOn::Always => *on,
                DefaultOn::Dashboards => true,
                DefaultOn::Never => false,
            },
            None => false,
        });
        Ok(Self {
            collectors: wanted.map(|entry| entry.name).collect(),
            roots: roots.map(Path::to_owned),
            extent: Extent::Plain,
            nobody: false,
        })
    }

    /// Starts the agent at `address`. Its settings and its log are in `folder`.
    pub fn agent(&self, folder: &Path, address: SocketAddr, tls: Option<&Files>) -> Result<Process> {
        let tls = match tls {
            None => "    plain: true\n".to_owned(),
            Some(files) => format!(
                "  tls:\n    certificate: {}\n    key: {}\n    clientCA: {}\n",
                files.certificate.display(),
                files.key.display(),
                files.ca.display()
            ),
        };
        let sysctls = SYSCTLS.map(|name| format!("{name:?}")).join(", ");
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  - name: default\n    \
             address: {address}\n{tls}metrics:\n  interrupts: {{ perInterrupt: true }}\n  filesystem: {{ \
             mountPointsExclude: {MOUNT_POINTS:?} }}\n  textfile: {{ directories: [\"{}\"] }}\n  sysctl: {{ include: \
             [{sysctls}], includeInfo: [{SYSCTL_INFO:?}] }}\n{}{}",
            self.textfiles(folder)?.display(),
            match self.extent {
                Extent::Plain => "",
                Extent::Wide => WIDE_SETTINGS,
                Extent::Renamed if self.aliases() => RENAMED_SETTINGS_HERE,
                Extent::Renamed => RENAMED_SETTINGS,
            },
            if self.cpu_info() { CPU_INFO_SETTINGS } else { "" }
        );
        let path = folder.join("agent.yaml");
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        let flags = COLLECTORS.iter().map(|entry| {
            let on = self.collectors.contains(&entry.name);
            let no = if on { "" } else { "no-" };
            format!("--{no}collector.{}", entry.name)
        });
        self.launch(folder, &bins::agent()?)?
            .args(["run", "--config"])
            .arg(path)
            .args(self.paths())
            .args(flags)
            .start(folder)
    }

    /// Starts node_exporter at `address`.
    pub fn node_exporter(&self, folder: &Path, address: SocketAddr, tls: Option<&Files>) -> Result<Process> {
        let mut launch = self
            .launch(folder, &parts::node_exporter()?)?
            .arg(format!("--web.listen-address={address}"))
            .arg("--collector.disable-defaults")
            .args(self.collectors.iter().map(|name| format!("--collector.{name}")))
            .args(self.paths())
            .arg(format!(
                "--collector.filesystem.mount-points-exclude={MOUNT_POINTS}"
            ))
            .arg(format!(
                "--collector.textfile.directory={}",
                self.textfiles(folder)?.display()
            ))
            .args(SYSCTLS.map(|name| format!("--collector.sysctl.include={name}")))
            .arg(format!("--collector.sysctl.include-info={SYSCTL_INFO}"));
        launch = match self.extent {
            Extent::Plain => launch,
            Extent::Wide => launch.args(WIDE),
            Extent::Renamed => launch.args(RENAMED),
        };
        if self.aliases() {
            launch = launch.arg(ALIASES);
        }
        if self.cpu_info() {
            launch = launch.args(CPU_INFO);
        }
        if let Some(roots) = &self.roots {
            launch = launch.args(FILES);
            if let Some(zone) = time_zone(&roots.join("rootfs")) {
                launch = launch.env("TZ", zone);
            }
        }
        if let Some(files) = tls {
            let text = format!(
                "tls_server_config:\n  cert_file: {}\n  key_file: {}\n  client_ca_file: {}\n  client_auth_type: RequireAndVerifyClientCert\n",
                files.certificate.display(),
                files.key.display(),
                files.ca.display()
            );
            let path = folder.join("web.yml");
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            launch = launch.arg(format!("--web.config.file={}", path.display()));
        }
        launch.start(folder)
    }

    /// Creates a folder with a text file that both read under the same path: the agent resolves it
    /// under its roots.
    fn textfiles(&self, folder: &Path) -> Result<PathBuf> {
        let inside = folder.join("textfiles");
        fs::create_dir_all(&inside)?;
        let file = inside.join("parity.prom");
        let text = "# HELP parity_answer An answer.\n# TYPE parity_answer gauge\nparity_answer{of=\"a textfile\"} 42\n";
        fs::write(&file, text).context("write a text file")?;
        if let Some(roots) = &self.roots {
            let under = roots.join("rootfs").join(file.strip_prefix("/")?);
            fs::create_dir_all(under.parent().context("a file has a folder")?)?;
            if !under.exists() {
                fs::hard_link(&file, &under).with_context(|| under.display().to_string())?;
            }
        }
        Ok(inside)
    }

    fn aliases(&self) -> bool {
        self.extent == Extent::Renamed && self.roots.is_none()
    }

    fn cpu_info(&self) -> bool {
        let there = |roots: &PathBuf| roots.join("proc/cpuinfo").is_file();
        self.extent == Extent::Wide && self.roots.as_ref().is_none_or(there)
    }

    fn paths(&self) -> Vec<String> {
        let Some(roots) = &self.roots else {
            return Vec::new();
        };
        let of = |flag: &str, name: &str| format!("--path.{flag}={}", roots.join(name).display());
        vec![
            of("procfs", "proc"),
            of("sysfs", "sys"),
            of("rootfs", "rootfs"),
            of("udev.data", "udev"),
        ]
    }

    /// For the user `nobody`, the program is copied to `folder`, because the build folder may not
    /// be accessible to all users.
    fn launch(&self, folder: &Path, program: &Path) -> Result<Launch> {
        if !self.nobody {
            return Ok(Launch::new(program));
        }
        let name = program.file_name().context("a program has a name")?;
        let copy = folder.join(name);
        fs::copy(program, &copy).with_context(|| format!("copy {}", program.display()))?;
        Ok(Launch::new(copy).as_nobody())
    }
}

/// The time zone file of a guest's root, if it exists: node_exporter only uses its own process's
/// time zone.
fn time_zone(rootfs: &Path) -> Option<PathBuf> {
    let target = fs::read_link(rootfs.join("etc/localtime")).ok()?;
    let file = rootfs.join(target.strip_prefix("/").ok()?);
    file.is_file().then_some(file)
}

/// Adds files that every kernel has, a fixture leaves out, and node_exporter requires: the roots
/// themselves, a process `self`, CPUs in sysfs, the list of offline CPUs, the first thread of each
/// process, the limits on processes and threads, and the softirq counters.
fn complete(tree: &Path) -> Result<()> {
    for name in ["proc", "sys", "rootfs", "udev"] {
        fs::create_dir_all(tree.join(name))?;
    }
    let (own, first) = (tree.join("proc/self"), tree.join("proc/1"));
    if !own.is_symlink() {
        if own.is_dir() {
            roots::copy(&own, &first)?;
            fs::remove_dir_all(&own).with_context(|| own.display().to_string())?;
        }
        fs::create_dir_all(&first)?;
        std::os::unix::fs::symlink("1", &own).with_context(|| own.display().to_string())?;
    }
    if !first.join("stat").exists() {
        // proc_pid_stat(5): 52 fields.
        let zeros = ["0"; 49].join(" ");
        fs::write(first.join("stat"), format!("1 (init) S {zeros}\n"))?;
    }
    let limits = tree.join("proc/sys/kernel");
    fs::create_dir_all(&limits)?;
    for (name, limit) in [("threads-max", "127000\n"), ("pid_max", "4194304\n")] {
        if !limits.join(name).exists() {
            fs::write(limits.join(name), limit)?;
        }
    }
    let stat = fs::read_to_string(tree.join("proc/stat")).unwrap_or_default();
    if stat.starts_with("cpu") && !stat.contains("\nsoftirq ") {
        fs::write(
            tree.join("proc/stat"),
            stat.trim_end().to_owned() + "\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
        )?;
    }
    let cpus = tree.join("sys/devices/system/cpu");
    if !cpus.is_dir() {
        let stat = fs::read_to_string(tree.join("proc/stat")).unwrap_or_default();
        let names = stat.lines().filter_map(|line| line.split(' ').next());
        for name in names.filter(|name| name.starts_with("cpu") && name.len() > 3) {
            fs::create_dir_all(cpus.join(name))?;
        }
    }
    if cpus.is_dir() && !cpus.join("offline").exists() {
        fs::write(cpus.join("offline"), "\n").with_context(|| cpus.display().to_string())?;
    }
    for entry in fs::read_dir(tree.join("proc"))? {
        let path = entry?.path();
        let (stat, tasks) = (path.join("stat"), path.join("task"));
        let id = path.file_name().unwrap_or_default();
        let process = id.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        if process && stat.is_file() && !tasks.exists() {
            fs::create_dir_all(tasks.join(id))?;
            fs::copy(&stat, tasks.join(id).join("stat")).with_context(|| stat.display().to_string())?;
        }
    }
    Ok(())
}

/// node_exporter's collectors, and whether each is enabled by default, from `--help`.
pub fn theirs() -> Result<BTreeMap<String, bool>> {
    let (_, text) = Launch::new(parts::node_exporter()?).arg("--help").said(SOON)?;
    let found = collectors_in(&text);
    ensure!(
        found.len() > 30,
        "node_exporter --help lists no collectors:\n{text}"
    );
    Ok(found)
}

/// Parses `--[no-]collector.NAME … (default: enabled)`, with any column width.
fn collectors_in(help: &str) -> BTreeMap<String, bool> {
    let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = BTreeMap::new();
    for option in flat.split(" --") {
        let Some((name, text)) = option
            .trim_start_matches("[no-]")
            .strip_prefix("collector.")
            .and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        let plain = !name.contains(['.', '=']) && text.starts_with("Enable the ");
        for (word, on) in [("(default: enabled)", true), ("(default: disabled)", false)] {
            if plain && text.contains(word) {
                found.insert(name.to_owned(), on);
            }
        }
    }
    found
}

/// Both programs, running.
pub struct Programs {
    ours: Client,
    theirs: Client,
    /// The copy of the roots that both read.
    roots: Option<PathBuf>,
    // Dropped before the folder with their logs.
    processes: [Process; 2],
    _folder: TempDir,
}

impl Programs {
    /// Starts both and waits until both answer.
    pub fn start(serve: &Serve) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        let mut serve = serve.clone();
        if let Some(roots) = &serve.roots {
            // A copy that is readable by all users and does not change meanwhile.
            let copy = path.join("roots");
            roots::copy(roots, &copy)?;
            complete(&copy)?;
            serve.roots = Some(copy);
        }
        let (own, other) = (ports::free()?, ports::free()?);
        let mut agent = serve.agent(path, own, None)?;
        let mut exporter = serve.node_exporter(path, other, None)?;
        agent.wait_for_port(own, SOON)?;
        exporter.wait_for_port(other, SOON)?;
        Ok(Self {
            ours: Client::plain(own, SOON)?,
            theirs: Client::plain(other, SOON)?,
            roots: serve.roots,
            processes: [agent, exporter],
            _folder: folder,
        })
    }

    /// Scrapes `count` rounds: node_exporter, the agent, node_exporter.
    pub fn rounds(&mut self, count: usize) -> Result<Vec<Round>> {
        // The first page of each program is ignored: some series only appear after the first
        // scrape.
        self.theirs()?;
        self.ours()?;
        (0..count.max(1))
            .map(|_| {
                Ok(Round {
                    before: self.theirs()?,
                    ours: self.ours()?,
                    after: self.theirs()?,
                })
            })
            .collect()
    }

    fn ours(&mut self) -> Result<Page> {
        let text = text(&mut self.ours, &self.processes[0])?;
        Page::read(&text).context("the agent's page")
    }

    /// node_exporter's page; paths of files are replaced by those in the guest, which the agent
    /// reports.
    fn theirs(&mut self) -> Result<Page> {
        let mut text = text(&mut self.theirs, &self.processes[1])?;
        if let Some(roots) = &self.roots {
            for (place, name) in [("/proc", "proc"), ("/sys", "sys"), ("", "rootfs")] {
                text = text.replace(&roots.join(name).display().to_string(), place);
            }
        }
        Page::read(&text).context("node_exporter's page")
    }
}

/// A page; the error quotes the end of the program's log.
fn text(client: &mut Client, process: &Process) -> Result<String> {
    let answer = client.get("/metrics").and_then(Answer::ok);
    let answer = answer.with_context(|| {
        let log = process.log();
        let from = log.char_indices().rev().nth(3000).map_or(0, |(at, _)| at);
        format!("a scrape failed; the log ends with:\n{}", &log[from..])
    })?;
    Ok(answer.text()?.to_owned())
}

#[test]
fn collectors_are_found_in_the_help_whatever_its_width() {
    let help = "  --[no-]collector.arp.netlink    Use netlink (default: enabled)\n  --[no-]collector.arp  Enable the arp \
                collector (default:\n      enabled).\n  --collector.x.y=\"\"  Z.\n --collector.cpu_vulnerabilities  \n   \
                Enable the cpu_vulnerabilities collector (default: disabled).\n  --path.procfs=\"/proc\"  p.";
    let found = collectors_in(help);
    let expected = [("arp", true), ("cpu_vulnerabilities", false)];
    assert_eq!(found, expected.map(|(name, on)| (name.to_owned(), on)).into());
}
