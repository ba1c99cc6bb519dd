//! Hung mounts, collectors that fail, filters and settings.

use std::{collections::BTreeMap, sync::mpsc, time::Duration};

use virtfleet_agent::metrics::{
    COLLECTORS, CollectError, Collector, Entry, Filter, FilterError, Registry, RegistryError,
};
use virtfleet_wire::{
    exposition::Page,
    settings::{MetricsSettings, Span},
};

use crate::world::*;

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
