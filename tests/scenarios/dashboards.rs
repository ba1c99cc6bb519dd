//! Every metric that the public dashboards and mixins ask for is exported when its collector has
//! data: somewhere among the golden pages of the fixture roots, the page of the machine that runs
//! this, and the agent's own series.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use virtfleet_agent_host::Roots;
use virtfleet_agent_metrics::{COLLECTORS, Filter, Registry};
use virtfleet_runtime::process::append_process_metrics;
use virtfleet_tests::parity;
use virtfleet_wire::{exposition::Page, settings::MetricsSettings};

/// Families that the documents name but no page here can have: one needs a setting, as in
/// node_exporter; the other is the server's own, and the comparison with node_exporter
/// (`parity.rs`) asks for it.
const DOCUMENTED: [&str; 2] = ["node_systemd_service_restart_total", "node_exporter_build_info"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Names by the title of their group.
fn wanted() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(fixtures().join("dashboards/names.txt")).unwrap();
    let (mut groups, mut title) = (BTreeMap::new(), String::new());
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("# ") {
            comment.split(": ").next().unwrap().clone_into(&mut title);
        } else {
            let group: &mut BTreeSet<String> = groups.entry(title.clone()).or_default();
            assert!(group.insert(line.to_owned()), "{line} stands there twice");
        }
    }
    groups
}

/// Names that others provide.
fn apart() -> BTreeSet<String> {
    let text = fs::read_to_string(fixtures().join("dashboards/apart.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            line.rsplit_once(": ")
                .unwrap_or_else(|| panic!("{line}: no reason"))
                .0
                .to_owned()
        })
        .collect()
}

/// Names of the samples of a page.
fn names(text: &str) -> BTreeSet<String> {
    let page = parity::Page::read(text).unwrap();
    let series = page.0.into_values().flat_map(|family| family.series.into_keys());
    series.map(|key| key.name).collect()
}

/// What stands in the pages about collectors.
fn documents() -> String {
    let folder = fixtures().join("../../docs");
    let rooms = fs::read_dir(folder.join("collectors")).unwrap();
    let pages = rooms.map(|page| page.unwrap().path());
    pages
        .chain([folder.join("collectors.md")])
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

/// The page of this machine with every collector, and what the agent says of its process.
fn here() -> String {
    let everything = COLLECTORS
        .iter()
        .map(|entry| (entry.name.to_owned(), true))
        .collect();
    let mut registry = Registry::new(&Roots::default(), &MetricsSettings::default(), &everything).unwrap();
    let mut page = Page::new();
    registry.scrape(&Filter::default(), &mut page).unwrap();
    append_process_metrics(&mut page, Path::new("/proc"));
    page.to_text()
}

#[test]
fn what_dashboards_and_mixins_ask_for_is_exported() {
    let mut exported = names(&here());
    for root in fs::read_dir(fixtures().join("roots")).unwrap() {
        let page = root.unwrap().path().join("expected.prom");
        if page.is_file() {
            exported.extend(names(&fs::read_to_string(page).unwrap()));
        }
    }
    let documents = documents();
    let named = |name: &&str| documents.contains(&format!("`{name}"));
    exported.extend(DOCUMENTED.into_iter().filter(named).map(str::to_owned));
    let groups = wanted();
    assert!(groups.len() == 3 && groups.values().all(|names| names.len() >= 10));
    let mut missing = Vec::new();
    for (title, names) in &groups {
        let lacking: Vec<&str> = names.difference(&exported).map(String::as_str).collect();
        if !lacking.is_empty() {
            missing.push(format!(
                "{title}: {} of {} are missing:\n  {}",
                lacking.len(),
                names.len(),
                lacking.join("\n  ")
            ));
        }
    }
    assert!(
        missing.is_empty(),
        "no page has what these ask for\n{}",
        missing.join("\n")
    );
    let both: Vec<_> = apart().intersection(&exported).cloned().collect();
    assert!(both.is_empty(), "listed as another's, but exported: {both:?}");
}

#[test]
fn no_name_is_both_wanted_and_anothers() {
    let apart = apart();
    for (title, names) in wanted() {
        let both: Vec<_> = names.intersection(&apart).collect();
        assert!(both.is_empty(), "{title}: {both:?}");
        assert!(names.iter().all(|name| !name.contains(':')), "{title}");
    }
}
