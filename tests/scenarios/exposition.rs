//! The agent's page from fixture roots: golden pages, broken input, hung mounts, failing collectors.
//!
//! A golden page lies beside its roots as `expected.prom`; `UPDATE_GOLDEN=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use nix::errno::Errno;
use virtfleet_agent::{
    dns_watch::History,
    host::{FsSpace, Machine, Roots, Statfs, Uname},
    metrics::{
        COLLECTORS, CollectError, Collector, Context, Entry, Filter, FilterError, Registry, RegistryError,
    },
};
use virtfleet_wire::{
    exposition::{Line, Page, parse_line},
    settings::{MetricsSettings, Span},
};

const FIXTURES: [&str; 3] = ["kubevirt", "minimal", "broken"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/roots")
        .join(name)
}

fn roots(dir: &Path) -> Roots {
    Roots {
        rootfs: dir.join("rootfs"),
        procfs: dir.join("proc"),
        sysfs: dir.join("sys"),
        udev_data: dir.join("udev"),
    }
}

/// A kernel that says what a test wants: `/mnt/gone` fails, a mount with a gate hangs until the gate is dropped.
#[derive(Default)]
struct FakeKernel {
    gates: Mutex<HashMap<PathBuf, mpsc::Receiver<()>>>,
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

impl Machine for FakeKernel {
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

fn context(dir: &Path, settings: MetricsSettings) -> (Context, Arc<FakeKernel>) {
    let kernel = Arc::new(FakeKernel::default());
    let context = Context {
        roots: roots(dir),
        settings,
        statfs: Arc::clone(&kernel) as Arc<dyn Statfs>,
        machine: Arc::clone(&kernel) as Arc<dyn Machine>,
        dns: History::default(),
    };
    (context, kernel)
}

fn registry(dir: &Path) -> Registry {
    let (context, _) = context(dir, MetricsSettings::default());
    Registry::with_table(COLLECTORS, context, &BTreeMap::new()).unwrap()
}

fn scrape(registry: &mut Registry) -> String {
    let mut page = Page::new();
    registry.scrape(&Filter::default(), &mut page).unwrap();
    check(page.to_text())
}

/// Refuses a page that Prometheus would misread: each family once, with `# HELP` and `# TYPE` before its samples, which
/// stand together, and no series twice.
fn check(text: String) -> String {
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    let (mut helped, mut typed) = ("", "");
    assert!(text.ends_with('\n') || text.is_empty());
    for line in text.lines() {
        match parse_line(line).unwrap_or_else(|error| panic!("{line}: {error}")) {
            Line::Help(name, help) => {
                assert!(families.insert(name.to_owned()), "{name} comes twice");
                assert!(!help.is_empty(), "{name} has no help");
                helped = name;
            }
            Line::Type(name, _) => {
                assert_eq!(name, helped, "TYPE follows HELP");
                typed = name;
            }
            Line::Sample(sample) => {
                assert_eq!(sample.name, typed, "a sample stands in its family");
                let labels: Vec<_> = sample
                    .labels
                    .map(|label| label.map(|(name, value)| (name.to_owned(), value.into_owned())))
                    .collect::<Result<_, _>>()
                    .unwrap();
                let names: BTreeSet<_> = labels.iter().map(|(name, _)| name).collect();
                assert_eq!(names.len(), labels.len(), "a label twice: {line}");
                assert!(
                    series.insert((typed.to_owned(), labels)),
                    "a series twice: {line}"
                );
            }
            Line::Blank | Line::Eof => panic!("an empty line or a comment"),
        }
    }
    text
}

/// The collectors by success.
fn successes(text: &str) -> BTreeMap<String, bool> {
    text.lines()
        .filter_map(|line| {
            let rest = line.strip_prefix("node_scrape_collector_success{collector=\"")?;
            let (name, value) = rest.split_once("\"} ")?;
            Some((name.to_owned(), value == "1"))
        })
        .collect()
}

#[test]
fn golden_pages() {
    for name in FIXTURES {
        let mut registry = registry(&fixture(name));
        let text = scrape(&mut registry);
        let (stable, took): (Vec<_>, Vec<_>) = text
            .lines()
            .partition(|line| !line.starts_with("node_scrape_collector_duration_seconds{"));
        assert_eq!(took.len(), COLLECTORS.len());
        let stable = stable.join("\n") + "\n";
        let path = fixture(name).join("expected.prom");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &stable).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap();
        for (line, (found, expected)) in stable.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{name}, line {}", line + 1);
        }
        assert_eq!(stable.len(), expected.len(), "{name}: the longer one goes on");
        let again = scrape(&mut registry);
        assert_eq!(successes(&again), successes(&text), "{name}: a second scrape");
        assert_eq!(again.lines().count(), text.lines().count());
    }
}

#[test]
fn every_collector_is_unique_documented_and_exports_from_a_fixture() {
    let names: BTreeSet<_> = COLLECTORS.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), COLLECTORS.len(), "names are unique");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/collectors.md");
    let docs = fs::read_to_string(docs).unwrap();
    let mut registry = registry(&fixture("kubevirt"));
    for entry in COLLECTORS {
        assert!(!entry.about.is_empty());
        let row = format!(
            "| `{}` | {} |",
            entry.name,
            if entry.default_on { "on" } else { "off" }
        );
        assert!(docs.contains(&row), "docs/collectors.md lacks the row {row}");
        let mut page = Page::new();
        let filter = Filter {
            collect: vec![entry.name.to_owned()],
            ..Filter::default()
        };
        registry.scrape(&filter, &mut page).unwrap();
        let text = check(page.to_text());
        assert!(successes(&text)[entry.name], "{} works", entry.name);
        assert!(page.samples() > 2, "{} exports data", entry.name);
        for line in text.lines() {
            if let Ok(Line::Help(family, _)) = parse_line(line) {
                let mentioned = docs.contains(&format!("`{family}`"))
                    || docs.contains(&format!("`{family}{{"))
                    || ["node_memory_", "node_vmstat_"]
                        .iter()
                        .any(|start| family.starts_with(start));
                assert!(mentioned, "docs/collectors.md lacks {family}");
            }
        }
    }
}

#[test]
fn the_machine_that_runs_the_tests_gives_a_good_page() {
    let mut registry =
        Registry::new(&Roots::default(), &MetricsSettings::default(), &BTreeMap::new()).unwrap();
    for _ in 0..3 {
        let text = scrape(&mut registry);
        for name in [
            "cpu",
            "meminfo",
            "filesystem",
            "netdev",
            "loadavg",
            "stat",
            "uname",
            "time",
        ] {
            assert!(successes(&text)[name], "{name}");
        }
    }
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

fn copy(from: &Path, to: &Path) {
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

#[test]
fn no_broken_file_hurts_more_than_its_collectors() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("kubevirt"), dir.path());
    fs::remove_file(dir.path().join("expected.prom")).unwrap();
    let mut all = Vec::new();
    files(dir.path(), &mut all);
    assert!(all.len() > 40);
    let mut registry = registry(dir.path());
    for path in all {
        let whole = fs::read(&path).unwrap();
        let huge = whole.repeat((5 << 20) / whole.len().max(1) + 1);
        let binary: Vec<_> = (0..=255).collect();
        let repeated = whole.repeat(3);
        for broken in [
            &whole[..whole.len() / 2],
            &whole[..whole.len().saturating_sub(3)],
            b"",
            &binary,
            &repeated,
            &huge,
        ] {
            fs::write(&path, broken).unwrap();
            let failed: Vec<_> = successes(&scrape(&mut registry))
                .into_iter()
                .filter(|(_, success)| !success)
                .map(|(name, _)| name)
                .collect();
            // `/proc/stat` is the only file that two collectors read.
            let allowed = if path.ends_with("proc/stat") { 2 } else { 1 };
            assert!(failed.len() <= allowed, "{}: {failed:?}", path.display());
        }
        fs::remove_file(&path).unwrap();
        scrape(&mut registry);
        fs::write(&path, &whole).unwrap();
    }
    let mut fresh = self::registry(dir.path());
    assert!(successes(&scrape(&mut fresh)).values().all(|success| *success));
}

#[test]
fn a_hung_mount_delays_one_scrape_and_is_told() {
    let mut settings = MetricsSettings::default();
    settings.filesystem.mount_timeout = Some(Span(Duration::from_millis(200)));
    let (context, kernel) = context(&fixture("kubevirt"), settings);
    let (open, gate) = mpsc::channel();
    let hung = context.roots.root("/srv/nfs");
    kernel.gates.lock().unwrap().insert(hung, gate);
    let mut registry = Registry::with_table(COLLECTORS, context, &BTreeMap::new()).unwrap();
    let error = "node_filesystem_device_error{device=\"10.0.0.9:/export\",mountpoint=\"/srv/nfs\",fstype=\"nfs4\",\
                 device_error=\"mountpoint timeout\"} 1";
    let healthy = "node_filesystem_size_bytes{device=\"/dev/vda1\",mountpoint=\"/\",fstype=\"ext4\",device_error=\"\"} ";
    for _ in 0..20 {
        let text = scrape(&mut registry);
        assert!(text.contains(error), "{text}");
        assert!(text.contains(healthy), "{text}");
        assert!(!text.contains("node_filesystem_size_bytes{device=\"10.0.0.9"));
        assert!(successes(&text)["filesystem"]);
    }
    drop(open);
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while scrape(&mut registry).contains("mountpoint timeout") {
        assert!(std::time::Instant::now() < deadline, "the mount answers again");
    }
}

/// Fails, panics or works by turns; writes before it does.
struct Moody(u32);

impl Collector for Moody {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        self.0 += 1;
        page.gauge("moody", "Half said when it fails.", f64::from(self.0));
        match self.0 {
            1 => Err(CollectError::failed("the first time fails")),
            2 => Err(CollectError::no_data("the second time has nothing")),
            3 => panic!("the third time panics"),
            _ => Ok(()),
        }
    }
}

struct Steady(&'static str);

impl Collector for Steady {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        page.gauge(self.0, "Always there.", 1.0);
        Ok(())
    }
}

static MOODY: &[Entry] = &[
    Entry::on("before", "Works.", |_| Ok(Box::new(Steady("before")))),
    Entry::on("moody", "Fails.", |_| Ok(Box::new(Moody(0)))),
    Entry::on("after", "Works.", |_| Ok(Box::new(Steady("after")))),
    Entry {
        default_on: false,
        ..Entry::on("off", "Works.", |_| Ok(Box::new(Steady("off"))))
    },
];

fn moody(overrides: &[(&str, bool)]) -> Registry {
    let (context, _) = context(&fixture("minimal"), MetricsSettings::default());
    let overrides = overrides
        .iter()
        .map(|(name, on)| ((*name).to_owned(), *on))
        .collect();
    Registry::with_table(MOODY, context, &overrides).unwrap()
}

#[test]
fn a_collector_that_fails_or_panics_leaves_the_rest_alone() {
    let mut registry = moody(&[]);
    // After the panic in the third scrape it is built anew, and begins again with a failure.
    for _ in 1..=7 {
        let text = scrape(&mut registry);
        assert!(text.contains("\nbefore 1\n") && text.contains("\nafter 1\n"));
        assert!(!text.contains("\nmoody "), "{text}");
        let success = successes(&text);
        assert_eq!(success.len(), 3);
        assert_eq!(
            (success["before"], success["moody"], success["after"]),
            (true, false, true)
        );
        assert_eq!(text.matches("node_scrape_collector_duration_seconds{").count(), 3);
    }
}

#[test]
fn filters_as_node_exporter_has_them() {
    let filter = |collect: &[&str], exclude: &[&str]| Filter {
        collect: collect.iter().map(ToString::to_string).collect(),
        exclude: exclude.iter().map(ToString::to_string).collect(),
    };
    let mut registry = moody(&[("moody", false)]);
    assert_eq!(
        registry.names().collect::<Vec<_>>(),
        ["before", "moody", "after", "off"]
    );
    assert_eq!(registry.enabled().collect::<Vec<_>>(), ["before", "after"]);
    let mut page = Page::new();
    let mut asked = |filter: Filter| {
        page.clear();
        registry.scrape(&filter, &mut page)?;
        Ok::<_, FilterError>(successes(&page.to_text()).into_keys().collect::<Vec<_>>())
    };
    assert_eq!(asked(filter(&["after"], &[])).unwrap(), ["after"]);
    assert_eq!(asked(filter(&["after", "after"], &[])).unwrap(), ["after"]);
    assert_eq!(asked(filter(&[], &["after", "nonsense"])).unwrap(), ["before"]);
    assert!(asked(filter(&[], &["after", "before"])).unwrap().is_empty());
    assert_eq!(asked(filter(&["after"], &["before"])), Err(FilterError::Both));
    assert_eq!(
        asked(filter(&["nonsense"], &[])),
        Err(FilterError::Missing("nonsense".into()))
    );
    let off = asked(filter(&["off"], &[])).unwrap_err();
    assert_eq!(
        off.to_string(),
        "collector \"off\" is disabled on this machine; its settings or --collector.off enable it"
    );
}

#[test]
fn settings_choose_collectors_and_the_command_line_wins() {
    let mut settings = MetricsSettings::default();
    settings.collectors.insert("cpu".into(), false);
    settings.collectors.insert("time".into(), false);
    let overrides = BTreeMap::from([("time".to_owned(), true), ("os".to_owned(), false)]);
    let registry = Registry::new(&roots(&fixture("minimal")), &settings, &overrides).unwrap();
    let enabled: Vec<_> = registry.enabled().collect();
    assert!(enabled.contains(&"time") && !enabled.contains(&"cpu") && !enabled.contains(&"os"));
    assert_eq!(enabled.len(), COLLECTORS.len() - 2);
}

#[test]
fn settings_that_cannot_work_are_named() {
    let new = |settings: &serde_json::Value, overrides: &[&str]| -> RegistryError {
        let settings: MetricsSettings = serde_json::from_value(settings.clone()).unwrap();
        let overrides = overrides.iter().map(|name| ((*name).to_owned(), true)).collect();
        Registry::new(&roots(&fixture("minimal")), &settings, &overrides).unwrap_err()
    };
    for (settings, overrides, message) in [
        (
            serde_json::json!({"collectors": {"filesystems": true}}),
            [].as_slice(),
            "metrics.collectors: there is no collector \"filesystems\"; did you mean \"filesystem\"?",
        ),
        (
            serde_json::json!({}),
            &["wombat"],
            "--[no-]collector.NAME: there is no collector \"wombat\"; `virtfleet-agent metrics --help` lists them",
        ),
        (
            serde_json::json!({"filesystem": {"fsTypesExclude": "a", "fsTypesInclude": "b"}}),
            &[],
            "metrics.filesystem.fsTypesExclude and metrics.filesystem.fsTypesInclude are both set; keep one of them",
        ),
        (
            serde_json::json!({"collectors": {"netdev": false}, "netdev": {"deviceInclude": "eth[0"}}),
            &[],
            "metrics.netdev.deviceInclude: \"eth[0\" is no regular expression",
        ),
        (
            serde_json::json!({"diskstats": {"deviceExclude": "*"}}),
            &[],
            "metrics.diskstats.deviceExclude: \"*\" is no regular expression",
        ),
        (
            serde_json::json!({"filesystem": {"mountTimeout": "0s"}}),
            &[],
            "metrics.filesystem.mountTimeout: no mount answers in no time; 5s is the default",
        ),
    ] {
        assert_eq!(new(&settings, overrides).to_string(), message);
    }
}
