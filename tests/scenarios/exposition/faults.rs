//! Hung mounts, collectors that fail, filters and settings.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use virtfleet_agent_metrics::{
    COLLECTORS, CollectError, Collector, Entry, Filter, FilterError, Registry, RegistryError,
};
use virtfleet_wire::{
    exposition::{MetricType, Page},
    settings::{MetricsSettings, Span},
};

use crate::exposition::world::*;

#[test]
fn a_hung_mount_delays_one_scrape_and_is_reported() {
    let mut settings = MetricsSettings::default();
    settings.filesystem.mount_timeout = Some(Span(Duration::from_secs(2)));
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
    let deadline = Instant::now() + Duration::from_secs(30);
    while scrape(&mut registry).contains("mountpoint timeout") {
        assert!(Instant::now() < deadline, "the mount answers again");
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
    Entry::off("off", "Works.", |_| Ok(Box::new(Steady("off")))),
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
    // After the panic in the third scrape it is built again, and begins again with a failure.
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

/// Hangs as long as its gate is shut.
struct Hanging(Arc<Mutex<mpsc::Receiver<()>>>);

impl Collector for Hanging {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        page.gauge("hanging", "Never half said.", 1.0);
        // It opens by being dropped, and stays open.
        assert!(
            self.0.lock().unwrap().recv().is_err(),
            "a gate opens by being dropped"
        );
        Ok(())
    }
}

/// Writes more than it may.
struct Talker;

impl Collector for Talker {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut family = page.family("talk", "Word by word.", MetricType::Gauge);
        for word in 0..100 {
            family.sample(&[("word", &word.to_string())], 1.0);
        }
        Ok(())
    }
}

static GATE: Mutex<Option<Arc<Mutex<mpsc::Receiver<()>>>>> = Mutex::new(None);

static PATIENT: &[Entry] = &[
    Entry::on("before", "Works.", |_| Ok(Box::new(Steady("before")))),
    Entry::on("hanging", "Hangs.", |_| {
        let gate = GATE.lock().unwrap().clone().unwrap();
        Ok(Box::new(Hanging(gate)))
    }),
    Entry::on("after", "Works.", |_| Ok(Box::new(Steady("after")))),
];

#[test]
fn a_collector_that_hangs_costs_one_wait_and_its_own_series() {
    let (open, gate) = mpsc::channel();
    *GATE.lock().unwrap() = Some(Arc::new(Mutex::new(gate)));
    let deadline = Duration::from_secs(2);
    let settings = MetricsSettings {
        deadline: Some(Span(deadline)),
        ..MetricsSettings::default()
    };
    let (context, _) = context(&fixture("minimal"), settings);
    let mut registry = Registry::with_table(PATIENT, context, &BTreeMap::new()).unwrap();
    for scrapes in 0..5 {
        let begun = Instant::now();
        let text = scrape(&mut registry);
        let took = begun.elapsed();
        assert!(
            text.starts_with("# HELP before ") && text.contains("\nafter 1\n"),
            "{text}"
        );
        assert!(!text.contains("\nhanging 1\n"), "{text}");
        let success = successes(&text);
        assert_eq!(
            (success["before"], success["hanging"], success["after"]),
            (true, false, true)
        );
        let reason = registry.reason("hanging").unwrap();
        if scrapes == 0 {
            assert!(
                took >= deadline && reason.starts_with("no result within 2s"),
                "{took:?}: {reason}"
            );
        } else {
            assert!(took < deadline, "it is not waited for again: {took:?}");
            assert_eq!(reason, "it still hangs in an earlier scrape");
        }
    }
    drop(open);
    let soon = Instant::now() + Duration::from_secs(30);
    while !successes(&scrape(&mut registry))["hanging"] {
        assert!(Instant::now() < soon, "it comes back once the kernel lets it go");
    }
    assert!(scrape(&mut registry).contains("\nhanging 1\n"));
    assert_eq!(registry.reason("hanging"), None);
}

static HANGING: &[Entry] = &[
    Entry::on("first", "Hangs.", |_| Ok(Box::new(Stuck))),
    Entry::on("second", "Hangs.", |_| Ok(Box::new(Stuck))),
    Entry::on("third", "Hangs.", |_| Ok(Box::new(Stuck))),
    Entry::on("after", "Works.", |_| Ok(Box::new(Steady("after")))),
];

/// Hangs for as long as the test runs.
struct Stuck;

impl Collector for Stuck {
    fn collect(&mut self, _page: &mut Page) -> Result<(), CollectError> {
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_page_comes_in_time_however_many_hang_at_once() {
    let settings = MetricsSettings {
        deadline: Some(Span(Duration::from_secs(6))),
        ..MetricsSettings::default()
    };
    let (context, _) = context(&fixture("minimal"), settings);
    let mut registry = Registry::with_table(HANGING, context, &BTreeMap::new()).unwrap();
    let begun = Instant::now();
    let text = scrape(&mut registry);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(7), "{took:?}");
    assert!(
        took < Duration::from_secs(12),
        "two whole deadlines would take twelve seconds: {took:?}"
    );
    assert_eq!(registry.reason("after"), Some("no time left in this scrape"));
    assert!(!text.contains("\nafter 1\n"), "{text}");
    scrape(&mut registry);
    let text = scrape(&mut registry);
    assert!(text.contains("\nafter 1\n"), "{text}");
    assert_eq!(registry.reason("after"), None);
}

static TALKING: &[Entry] = &[
    Entry::on("talker", "Talks.", |_| Ok(Box::new(Talker))),
    Entry::on("after", "Works.", |_| Ok(Box::new(Steady("after")))),
];

#[test]
fn what_is_beyond_a_budget_is_left_out_and_told() {
    let scraped = |settings: serde_json::Value| {
        let settings: MetricsSettings = serde_json::from_value(settings).unwrap();
        let (context, _) = context(&fixture("minimal"), settings);
        scrape(&mut Registry::with_table(TALKING, context, &BTreeMap::new()).unwrap())
    };
    let words = |text: &str| text.lines().filter(|line| line.starts_with("talk{")).count();
    let dropped = "virtfleet_agent_series_dropped{collector=\"talker\"} ";
    let text = scraped(serde_json::json!({}));
    assert_eq!(words(&text), 100);
    assert!(!text.contains(dropped), "{text}");
    for settings in [
        serde_json::json!({"maxSeries": 40}),
        serde_json::json!({"maxSeries": 1, "maxSeriesOf": {"talker": 40, "after": 1}}),
    ] {
        let text = scraped(settings);
        assert_eq!(words(&text), 40);
        assert!(
            text.contains(&format!("\n{dropped}60\n")) && text.contains("\nafter 1\n"),
            "{text}"
        );
        assert!(successes(&text)["talker"]);
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
    // Earlier versions had it.
    assert_eq!(asked(filter(&["after", "rapl"], &[])).unwrap(), ["after"]);
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
    let by_default = COLLECTORS.iter().filter(|entry| entry.runs_in(settings.profile));
    assert_eq!(enabled.len(), by_default.count() - 2);
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
            "metrics.netdev.deviceInclude: \"eth[0\" is not a regular expression",
        ),
        (
            serde_json::json!({"diskstats": {"deviceExclude": "*"}}),
            &[],
            "metrics.diskstats.deviceExclude: \"*\" is not a regular expression",
        ),
        (
            serde_json::json!({"filesystem": {"mountTimeout": "0s"}}),
            &[],
            "metrics.filesystem.mountTimeout: must be more than 0; 5s is the default",
        ),
        (
            serde_json::json!({"deadline": "0s"}),
            &[],
            "metrics.deadline: must be more than 0; 8s is the default",
        ),
        (
            serde_json::json!({"maxSeriesOf": {"cpus": 3}}),
            &[],
            "metrics.maxSeriesOf: there is no collector \"cpus\"; did you mean \"cpu\"?",
        ),
    ] {
        assert_eq!(new(&settings, overrides).to_string(), message);
    }
}
