//! Roots and a kernel for the agent's page, and what every page must keep to.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use nix::errno::Errno;
use virtfleet_agent_host::{
    ClockCalls, FsSpace, MachineCalls, NetworkCalls, NicCalls, Roots, ServiceCalls, Statfs, Uname,
};
use virtfleet_agent_metrics::{COLLECTORS, Context, DefaultOn, Filter, Registry};
use virtfleet_agent_state::DnsHistory;
use virtfleet_wire::{
    exposition::{Line, Page, parse_line},
    settings::{MetricsSettings, NicSettings},
};

pub(crate) const FIXTURES: [&str; 4] = ["kubevirt", "hardware", "minimal", "broken"];

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/roots")
        .join(name)
}

pub(crate) fn roots(dir: &Path) -> Roots {
    Roots {
        rootfs: dir.join("rootfs"),
        procfs: dir.join("proc"),
        sysfs: dir.join("sys"),
        udev_data: dir.join("udev"),
    }
}

/// A kernel that says what a test wants: `/mnt/gone` fails, a mount with a gate hangs until the
/// gate is dropped.
#[derive(Default)]
pub(crate) struct FakeKernel {
    pub(crate) gates: Mutex<HashMap<PathBuf, mpsc::Receiver<()>>>,
}

impl Statfs for FakeKernel {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        let gate = self.gates.lock().unwrap().remove(path);
        if let Some(gate) = gate {
            assert!(gate.recv().is_err(), "a gate opens by being dropped");
        }
        if path.ends_with("mnt/gone") {
            return Err(Errno::EIO);
        }
        Ok(FsSpace {
            size: 21_474_836_480,
            free: 10_737_418_240,
            available: 9_663_676_416,
            files: 1_310_720,
            files_free: 1_200_000,
        })
    }
}

impl MachineCalls for FakeKernel {
    fn uname(&self) -> Result<Uname, Errno> {
        Ok(Uname {
            sysname: "Linux".into(),
            release: "6.8.0-60-generic".into(),
            version: "#63-Ubuntu SMP".into(),
            machine: "x86_64".into(),
            nodename: "pool-a-7d9f".into(),
            domainname: "(none)".into(),
        })
    }
    fn realtime(&self) -> Duration {
        Duration::new(1_751_360_400, 250_000_000)
    }
}

pub(crate) fn context(dir: &Path, settings: MetricsSettings) -> (Context, Arc<FakeKernel>) {
    let kernel = Arc::new(FakeKernel::default());
    let context = Context {
        roots: roots(dir),
        settings,
        statfs: Arc::clone(&kernel) as Arc<dyn Statfs>,
        machine: Arc::clone(&kernel) as Arc<dyn MachineCalls>,
        network: Arc::clone(&kernel) as Arc<dyn NetworkCalls>,
        nics: Arc::clone(&kernel) as Arc<dyn NicCalls>,
        clock: Arc::clone(&kernel) as Arc<dyn ClockCalls>,
        services: Arc::clone(&kernel) as Arc<dyn ServiceCalls>,
        dns: DnsHistory::default(),
        nic: NicSettings::default(),
    };
    (context, kernel)
}

/// The defaults, and something to do for collectors that do nothing without settings.
pub(crate) fn settings() -> MetricsSettings {
    let mut settings = MetricsSettings::default();
    settings.sysctl.include = vec![
        "kernel.pid_max".to_owned(),
        "net.ipv4.tcp_rmem:min,default,max".to_owned(),
    ];
    settings.sysctl.include_info = vec!["net.ipv4.tcp_available_congestion_control".to_owned()];
    settings.textfile.directories = vec!["/var/lib/node_exporter/*".to_owned()];
    settings
}

pub(crate) fn registry(dir: &Path) -> Registry {
    let (context, _) = context(dir, settings());
    Registry::with_table(COLLECTORS, context, &everything()).unwrap()
}

/// Only the collectors that have data under `dir`.
pub(crate) fn registry_of_what_works(dir: &Path) -> Registry {
    let (context, _) = context(dir, MetricsSettings::default());
    let works = successes(&scrape(&mut registry(dir)));
    Registry::with_table(COLLECTORS, context, &works).unwrap()
}

pub(crate) fn scrape(registry: &mut Registry) -> String {
    let mut page = Page::new();
    registry.scrape(&Filter::default(), &mut page).unwrap();
    check(page.to_text())
}

/// Refuses a page that Prometheus would misread: each family once, with `# HELP` and `# TYPE`
/// before its samples, which stand together, and no series twice.
pub(crate) fn check(text: String) -> String {
    let (mut families, mut series) = (HashSet::new(), HashSet::new());
    let (mut helped, mut typed) = ("", "");
    assert!(text.ends_with('\n') || text.is_empty());
    for line in text.lines() {
        match parse_line(line).unwrap_or_else(|error| panic!("{line}: {error}")) {
            Line::Help(name, help) => {
                assert!(families.insert(name), "{name} comes twice");
                assert!(!help.is_empty(), "{name} has no help");
                helped = name;
            }
            Line::Type(name, _) => {
                assert_eq!(name, helped, "TYPE follows HELP");
                typed = name;
            }
            Line::Sample(sample) => {
                assert_eq!(sample.name, typed, "a sample stands in its family");
                let labels: Vec<_> = sample.labels.collect::<Result<_, _>>().unwrap();
                for (at, (name, _)) in labels.iter().enumerate() {
                    let is_first = labels[..at].iter().all(|(other, _)| other != name);
                    assert!(is_first, "a label twice: {line}");
                }
                assert!(series.insert((typed, labels)), "a series twice: {line}");
            }
            Line::Blank | Line::Eof => panic!("an empty line or a comment"),
        }
    }
    text
}

/// The collectors by success.
pub(crate) fn successes(text: &str) -> BTreeMap<String, bool> {
    text.lines()
        .filter_map(|line| {
            let rest = line.strip_prefix("node_scrape_collector_success{collector=\"")?;
            let (name, value) = rest.split_once("\"} ")?;
            Some((name.to_owned(), value == "1"))
        })
        .collect()
}

/// All collectors are on: what is off by default has to be right, too.
pub(crate) fn everything() -> BTreeMap<String, bool> {
    COLLECTORS
        .iter()
        .map(|entry| (entry.name.to_owned(), true))
        .collect()
}

/// How the documents say when a collector is on.
pub(crate) fn default_word(default_on: DefaultOn) -> &'static str {
    match default_on {
        DefaultOn::Always => "on",
        DefaultOn::Dashboards => "dashboards",
        DefaultOn::Never => "off",
    }
}

pub(crate) fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&entry.path(), &target),
            kind if kind.is_symlink() => {
                std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), target).unwrap();
            }
            _ => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}
