//! The shipped dashboards: the JSON files and ConfigMaps are those of their sources, each query
//! asks for series that exist, and a real Prometheus that scrapes a fleet answers each of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;

use std::{collections::BTreeSet, fs};

use regex_lite::Regex;
use serde_json::Value;
use virtfleet_tests::grafana::{
    self, DASHBOARDS, DashboardSources, FOR_TENANTS, PanelKind, config_map, render,
};

use crate::expressions::{ExportedFamilies, add_page, exported, read, require_exported, root, yaml};

/// ConfigMaps: the file, and the dashboards in it.
const CONFIG_MAPS: [(&str, &[&str]); 2] = [
    (
        "packaging/collector/kubernetes/monitoring/dashboards.yaml",
        &DASHBOARDS,
    ),
    (
        "packaging/collector/kubernetes/kkp-mla/dashboards.yaml",
        &FOR_TENANTS,
    ),
];
/// Maximum size of a ConfigMap's file: `kubectl apply` stores the object in an annotation of the
/// object, and annotations have at most 256 KiB (Kubernetes API, `metadata.annotations`).
const MAX_CONFIG_MAP_BYTES: usize = 256 << 10;

fn sources() -> DashboardSources {
    grafana::read(&root().join("packaging/grafana/source")).unwrap()
}

fn rendered(sources: &DashboardSources, name: &str) -> Value {
    render(&sources.dashboards[name], &sources.variables).unwrap()
}

/// `UPDATE_GOLDEN=1` writes the files again.
#[test]
fn files_are_those_of_the_sources() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let sources = sources();
    for name in DASHBOARDS {
        let path = root().join(format!("packaging/grafana/virtfleet-{name}.json"));
        let text = serde_json::to_string_pretty(&rendered(&sources, name)).unwrap() + "\n";
        if update {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{}", path.display());
    }
    for (path, names) in CONFIG_MAPS {
        let shipped = read(path);
        let head = shipped
            .split_inclusive('\n')
            .take_while(|line| *line != "data:\n");
        let head: String = head.collect();
        let dashboards: Vec<_> = names
            .iter()
            .map(|name| (*name, rendered(&sources, name)))
            .collect();
        let listed: Vec<_> = dashboards.iter().map(|(name, json)| (*name, json)).collect();
        let text = config_map(&head, &listed);
        if update {
            fs::write(root().join(path), &text).unwrap();
        }
        assert_eq!(read(path), text, "{path}");
        assert!(text.len() < MAX_CONFIG_MAP_BYTES, "{path}: {} bytes", text.len());
        // As Kubernetes reads it, each value is the dashboard.
        let object = yaml(path);
        for (name, json) in &dashboards {
            let value = object["data"][format!("virtfleet-{name}.json")].as_str().unwrap();
            assert_eq!(
                &serde_json::from_str::<Value>(value).unwrap(),
                json,
                "{path}: {name}"
            );
        }
    }
}

/// The sidecar of Grafana's Helm chart selects ConfigMaps by a label; KKP's controller selects them
/// in its namespace `mla`, by the start of their names (kubermatic,
/// `pkg/controller/seed-controller-manager/mla/dashboard_grafana_controller.go`).
#[test]
fn config_maps_are_found_by_those_who_read_them() {
    let [sidecar, kkp] = CONFIG_MAPS.map(|(path, _)| yaml(path));
    assert_eq!(sidecar["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(kkp["metadata"]["namespace"], "mla");
    let name = kkp["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("grafana-dashboards"), "{name}");
}

#[test]
fn every_panel_can_be_understood_and_leads_on() {
    let sources = sources();
    let units = ["percentunit", "bytes", "s", "Bps", "bps", "pps"];
    let variable = Regex::new(r"\$\{?([a-z]+)").unwrap();
    for (name, dashboard) in &sources.dashboards {
        let mut titles = BTreeSet::new();
        assert_eq!(dashboard.uid, format!("virtfleet-{name}"));
        assert!(dashboard.description.ends_with('.'), "{name}");
        for row in &dashboard.rows {
            for panel in &row.panels {
                let at = format!("{name}: {}: {}", row.title, panel.title);
                assert!(titles.insert((&row.title, &panel.title)), "{at} is there twice");
                assert!(
                    panel.description.len() > 20 && panel.description.ends_with('.'),
                    "{at}"
                );
                assert!(
                    (1..=24).contains(&panel.width) && !panel.queries.is_empty(),
                    "{at}"
                );
                let used = panel
                    .unit
                    .iter()
                    .chain(panel.columns.iter().flat_map(|c| &c.unit));
                assert!(used.clone().all(|unit| units.contains(&unit.as_str())), "{at}");
                let is_table = panel.kind == PanelKind::Table;
                assert_eq!(is_table, !panel.columns.is_empty(), "{at}");
                for link in panel.columns.iter().flat_map(|column| &column.link) {
                    assert!(DASHBOARDS.contains(&link.as_str()), "{at}: {link}");
                }
                for query in &panel.queries {
                    assert!(!query.expr.contains('@'), "{at}: unknown macro in {}", query.expr);
                    for hit in variable.captures_iter(&query.expr) {
                        let known = dashboard.variables.iter().any(|variable| *variable == hit[1]);
                        assert!(
                            known || hit[0].starts_with("$__"),
                            "{at}: no variable {}",
                            &hit[0]
                        );
                    }
                    let several = panel.queries.len() > 1;
                    assert!(
                        is_table || !several || !query.legend.is_empty(),
                        "{at}: no legend"
                    );
                }
            }
        }
    }
}

/// ExportedFamilies of a fixture page.
fn families(page: &str) -> ExportedFamilies {
    let mut found = ExportedFamilies::new();
    add_page(&mut found, &read(&format!("tests/fixtures/dashboards/{page}")));
    found
}

/// All expressions, with what they belong to.
fn expressions(sources: &DashboardSources) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, dashboard) in &sources.dashboards {
        for panel in dashboard.panels() {
            let queries = panel.queries.iter();
            all.extend(queries.map(|query| (format!("{name}: {}", panel.title), query.expr.clone())));
        }
    }
    all
}

#[test]
fn every_series_and_label_of_a_query_is_exported() {
    let sources = sources();
    let mut exported = exported();
    // What the tests feed in must be real: the collector's part of it is in the documentation.
    for page in ["live.prom", "mla.prom"] {
        for (family, labels) in families(page) {
            let known = exported
                .get(&family)
                .unwrap_or_else(|| panic!("nothing exports {family}"));
            let unknown: Vec<_> = labels.difference(known).filter(|label| *label != "job").collect();
            assert!(unknown.is_empty(), "{family}: {unknown:?}, of {known:?}");
        }
    }
    exported.extend(families("kubevirt.prom"));
    let mut count = 0;
    for (at, expression) in expressions(&sources) {
        count += require_exported(&at, &expression, &exported);
    }
    for (name, variable) in &sources.variables {
        let (series, label) = variable.parts().unwrap();
        count += require_exported(name, series, &exported);
        let family = series.split('{').next().unwrap();
        assert!(
            exported[family].contains(label),
            "{name}: {family} has no label {label}"
        );
    }
    assert!(count >= 150, "{count}");
}

/// Families that the dashboards take from elsewhere are in the fixture pages, and no
/// others.
#[test]
fn fixture_pages_have_what_is_queried_and_no_more() {
    let all: Vec<String> = expressions(&sources())
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    for page in ["kubevirt.prom", "live.prom", "mla.prom"] {
        for family in families(page).keys() {
            let used = Regex::new(&format!(r"\b{family}\b")).unwrap();
            assert!(
                all.iter().any(|text| used.is_match(text)),
                "{page}: no panel uses {family}"
            );
        }
    }
}
