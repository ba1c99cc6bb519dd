//! Checks PromQL expressions of shipped rules and dashboards against what is exported.
#![expect(clippy::unwrap_used, reason = "all of it is test code")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use regex_lite::Regex;
use serde_json::Value;
use virtfleet_wire::layered::parse_yaml;

/// Labels that Prometheus or its scrape configuration adds.
const TARGET_LABELS: [&str; 5] = ["job", "instance", "namespace", "name", "cluster"];
/// ExportedFamilies of other programs, and of settings that need no `job`: a relay has no job in
/// `prometheus.yaml`.
const WITHOUT_JOB: [&str; 2] = ["virtfleet_relay_", "kubevirt_"];
/// Name of a family, with recorded ones.
const NAME: &str = "[a-zA-Z_:][a-zA-Z0-9_:]*";

/// Labels by family.
pub(crate) type ExportedFamilies = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn yaml(path: &str) -> Value {
    parse_yaml(&read(path)).unwrap()[0].to_json()
}

/// All rules of a rule file, of all groups.
pub(crate) fn rules(path: &str) -> Vec<Value> {
    let file = yaml(path);
    let groups = file["groups"].as_array().unwrap().clone();
    let rules = groups.into_iter();
    rules
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

pub(crate) fn text<'a>(rule: &'a Value, path: &str) -> &'a str {
    rule.pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("{path} of {rule}"))
}

/// Adds the families of a page of samples.
pub(crate) fn add_page(found: &mut ExportedFamilies, page: &str) {
    let sample = Regex::new(&format!(r"(?m)^({NAME})(?:\{{(.*)\}})? [-+0-9.eNaIinf]+$")).unwrap();
    let label = Regex::new(r#"([a-z_]+)=""#).unwrap();
    for hit in sample.captures_iter(page) {
        let labels = found.entry(hit[1].to_owned()).or_default();
        let text = hit.get(2).map_or("", |labels| labels.as_str());
        labels.extend(label.captures_iter(text).map(|one| one[1].to_owned()));
    }
}

/// Series with their labels: of golden pages, which tests compare with what the programs export, of
/// the tables of metrics, and the results of recording rules.
pub(crate) fn exported() -> ExportedFamilies {
    let mut found = ExportedFamilies::new();
    let mut pages = vec![read(
        "collector/src/api/snapshots/virtfleet_collector__api__fleet_page__tests__snapshot_of_the_page.snap",
    )];
    for folder in fs::read_dir(root().join("tests/fixtures/roots")).unwrap() {
        pages.extend(fs::read_to_string(folder.unwrap().path().join("expected.prom")));
    }
    for page in &pages {
        add_page(&mut found, page);
    }
    // `family{a,b}` in the first column, or the labels in a column of their own.
    let family = Regex::new(r"`(virtfleet_[a-z_]+)(?:\{([a-z_,]+)\})?`").unwrap();
    let words = Regex::new(r"^`[a-z_]+(?:, [a-z_]+)*`$").unwrap();
    let metrics = read("docs/metrics.md");
    let process = Regex::new(r"`(process_[a-z_]+)`").unwrap();
    for hit in process.captures_iter(&metrics) {
        found.insert(hit[1].to_owned(), BTreeSet::new());
    }
    let mut tables = vec![metrics];
    for page in fs::read_dir(root().join("docs/collectors")).unwrap() {
        tables.push(fs::read_to_string(page.unwrap().path()).unwrap());
    }
    for row in tables
        .iter()
        .flat_map(|page| page.lines())
        .filter(|line| line.starts_with("| `"))
    {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        let first = cells.next().unwrap();
        let listed = cells
            .take(2)
            .find(|cell| words.is_match(cell))
            .unwrap_or_default();
        for hit in family.captures_iter(first) {
            let labels = found.entry(hit[1].to_owned()).or_default();
            let own = hit.get(2).map_or("", |labels| labels.as_str());
            let all = own.split(',').chain(listed.trim_matches('`').split(", "));
            labels.extend(all.filter(|one| !one.is_empty()).map(str::to_owned));
        }
    }
    // Series of declared disks have the label `name`; nothing else needs a word here.
    found.insert("up".to_owned(), BTreeSet::new());
    for rule in rules("packaging/collector/rules/virtfleet-recording.yaml") {
        let record = text(&rule, "/record");
        let level = record.split(':').next().unwrap().to_owned();
        found.insert(record.to_owned(), BTreeSet::from([level]));
    }
    found
}

/// Requires that each family and label in an expression is exported, and that each selects the job;
/// returns how many selectors there are. `name` is for messages.
pub(crate) fn require_exported(name: &str, expression: &str, exported: &ExportedFamilies) -> usize {
    let selector = Regex::new(&format!(r"({NAME})(?:\{{([^}}]*)\}})?")).unwrap();
    let label = Regex::new(r#"([a-z_]+)\s*(?:=~|!~|!=|=)\s*""#).unwrap();
    let starts = ["virtfleet_", "node_", "process_", "kubevirt_"];
    // Labels in `by (…)` and strings look like families.
    let strings = Regex::new(r"(by|on|without|group_left|ignoring) *\([^)]*\)").unwrap();
    let expression = strings.replace_all(expression, "$1 ()");
    let mut count = 0;
    for hit in selector.captures_iter(&expression) {
        let family = &hit[1];
        let is_series =
            family == "up" || family.contains(':') || starts.iter().any(|start| family.starts_with(start));
        if !is_series {
            continue;
        }
        count += 1;
        let known = exported
            .get(family)
            .unwrap_or_else(|| panic!("{name}: nothing exports {family}"));
        let text = hit.get(2).map_or("", |labels| labels.as_str());
        assert!(
            text.contains("job=") || WITHOUT_JOB.iter().any(|start| family.starts_with(start)),
            "{name}: {family} without job: a guest could export it"
        );
        for one in label.captures_iter(text) {
            let is_known = known.contains(&one[1]) || TARGET_LABELS.contains(&&one[1]);
            assert!(is_known, "{name}: {family} has no label {}: {known:?}", &one[1]);
        }
    }
    count
}
