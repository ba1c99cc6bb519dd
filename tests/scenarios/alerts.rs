//! The shipped rules: rule files and PrometheusRules are the same, every series and label in an
//! expression is exported, every alert has a runbook page, every rule has unit tests, and promtool
//! runs them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use regex_lite::Regex;
use virtfleet_tests::{parts, process::Launch, skip};

use crate::expressions::{exported, read, require_exported, root, rules, text, yaml};

/// Rules that alert.
const ALERTS: &str = "packaging/collector/rules/virtfleet.yaml";
/// Rules that record.
const RECORDS: &str = "packaging/collector/rules/virtfleet-recording.yaml";
/// The alerts about guests for KKP's MLA.
const KKP_RULES: &str = "packaging/collector/kubernetes/kkp-mla/rulegroups.yaml";
/// The objects for prometheus-operator, with the rule file of each.
const OBJECTS: [(&str, &str); 2] = [
    (
        "packaging/collector/kubernetes/monitoring/prometheusrule.yaml",
        ALERTS,
    ),
    (
        "packaging/collector/kubernetes/monitoring/prometheusrule-recording.yaml",
        RECORDS,
    ),
];

/// Everything above the groups of a PrometheusRule is written by hand; the groups are those of the
/// rule file, indented. `UPDATE_GOLDEN=1` writes them again.
#[test]
fn rule_files_and_objects_are_the_same() {
    for (object, file) in OBJECTS {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let (head, _) = read(object)
                .split_once("  groups:\n")
                .map(|(head, groups)| (head.to_owned(), groups.to_owned()))
                .unwrap();
            let rules = read(file);
            let lines = rules.split_once("groups:\n").unwrap().1.lines();
            let groups: String = lines.flat_map(|line| ["  ", line, "\n"]).collect();
            fs::write(root().join(object), format!("{head}  groups:\n{groups}")).unwrap();
        }
        let (object, file) = (yaml(object), yaml(file));
        assert_eq!(object["kind"], "PrometheusRule");
        assert_eq!(object["apiVersion"], "monitoring.coreos.com/v1");
        assert_eq!(object["spec"]["groups"], file["groups"]);
    }
}

/// KKP's RuleGroup (kubermatic, `pkg/apis/kubermatic/v1/rulegroup.go`): `data` is a group in
/// base64. `UPDATE_GOLDEN=1` writes it again.
#[test]
fn rule_group_for_kkp_is_that_of_the_rule_file() {
    let file = yaml(ALERTS);
    let groups = file["groups"].as_array().unwrap();
    let group = groups.iter().find(|group| group["name"] == "virtfleet-guests");
    let group = group.unwrap().to_string();
    let own = r#"job=\"node\""#;
    let count = group.matches(own).count();
    assert!(count >= 10, "{count}");
    let group = group.replace(own, r#"job=~\"node|node-exporter\""#);
    let data = BASE64_STANDARD.encode(&group);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let shipped = read(KKP_RULES);
        let head = shipped.split("  data: ").next().unwrap();
        fs::write(root().join(KKP_RULES), format!("{head}  data: {data}\n")).unwrap();
    }
    let object = yaml(KKP_RULES);
    assert_eq!(object["spec"]["data"].as_str(), Some(data.as_str()));
    assert_eq!(object["metadata"]["namespace"], "mla");
    assert_eq!(object["spec"]["ruleGroupType"], "Metrics");
}

#[test]
fn every_alert_has_texts_a_runbook_and_a_row_in_the_documentation() {
    let page = read("docs/alerts.md");
    let mut names = BTreeSet::new();
    for rule in rules(ALERTS) {
        let name = text(&rule, "/alert");
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        let severity = text(&rule, "/labels/severity");
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}: {severity}"
        );
        for annotation in ["summary", "description"] {
            let said = text(&rule, &format!("/annotations/{annotation}"));
            assert!(said.ends_with('.') && said.len() < 400, "{name}: {said}");
        }
        let url = text(&rule, "/annotations/runbook_url");
        let runbook = url
            .strip_prefix("docs/runbooks/")
            .and_then(|page| page.strip_suffix(".md"))
            .unwrap_or_else(|| panic!("{name}: {url}"));
        assert_eq!(runbook, name, "the page has the name of its alert");
        let runbook = read(&format!("docs/runbooks/{name}.md"));
        for part in [
            "## Meaning",
            "## Impact",
            "## Diagnosis",
            "## Mitigation",
            "## When to ignore it",
        ] {
            assert!(runbook.contains(part), "{name}: the runbook has no {part}");
        }
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| [`{name}`]")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in docs/alerts.md"));
        assert!(row.contains(severity), "{row}");
    }
    let pages = fs::read_dir(root().join("docs/runbooks")).unwrap();
    let pages: BTreeSet<String> = pages
        .map(|page| {
            page.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(pages, names, "each page belongs to an alert");
    assert!(names.len() >= 20);
}

#[test]
fn every_series_and_label_of_an_expression_is_exported() {
    let exported = exported();
    let mut count = 0;
    for rule in rules(ALERTS) {
        count += require_exported(text(&rule, "/alert"), text(&rule, "/expr"), &exported);
    }
    for rule in rules(RECORDS) {
        count += require_exported(text(&rule, "/record"), text(&rule, "/expr"), &exported);
    }
    assert!(count >= 90, "{count}");
}

/// Names are LEVEL:METRIC:OPERATIONS (Prometheus documentation, "Recording rules"), and results
/// cannot be taken for series of a guest.
#[test]
fn recorded_series_have_conventional_names_a_job_and_tests() {
    let tests = yaml("packaging/collector/rules/virtfleet-recording.test.yaml");
    let expressions: Vec<String> = tests["tests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|test| test["promql_expr_test"].as_array().unwrap().clone())
        .map(|test| text(&test, "/expr").to_owned())
        .collect();
    let page = read("docs/metrics.md");
    let shape = Regex::new("^(vm|infra_node|zone|cluster):node_[a-z_]+:[a-z_0-9]+$").unwrap();
    let mut names = BTreeSet::new();
    for rule in rules(RECORDS) {
        let name = text(&rule, "/record").to_owned();
        assert!(shape.is_match(&name), "{name}");
        assert_eq!(text(&rule, "/labels/job"), "virtfleet-rules", "{name}");
        assert!(
            expressions.contains(&format!("{name}{{job=\"virtfleet-rules\"}}")),
            "{name} has no unit test"
        );
        let (_, metric) = name.split_once(':').unwrap();
        assert!(
            page.contains(&format!("`{metric}`")),
            "{metric} is not in docs/metrics.md"
        );
        assert!(names.insert(name.clone()), "{name} is there twice");
    }
}

#[test]
fn every_alert_is_tested_just_above_and_just_below() {
    let tests = yaml("packaging/collector/rules/virtfleet.test.yaml");
    let mut seen: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    for test in tests["tests"].as_array().unwrap() {
        for one in test["alert_rule_test"].as_array().unwrap() {
            let name = text(one, "/alertname").to_owned();
            let is_firing = one["exp_alerts"].as_array().is_some_and(|all| !all.is_empty());
            let entry = seen.entry(name).or_default();
            *entry = (entry.0 || is_firing, entry.1 || !is_firing);
        }
    }
    for rule in rules(ALERTS) {
        let name = text(&rule, "/alert");
        assert_eq!(
            seen.get(name),
            Some(&(true, true)),
            "{name}: fires, and does not fire"
        );
    }
}

/// In one test: it fires, and later it does not.
#[test]
fn every_alert_resolves_in_a_test() {
    let tests = yaml("packaging/collector/rules/virtfleet.test.yaml");
    let mut resolved = BTreeSet::new();
    for test in tests["tests"].as_array().unwrap() {
        let mut fired = BTreeMap::<&str, u32>::new();
        for one in test["alert_rule_test"].as_array().unwrap() {
            let name = text(one, "/alertname");
            let minute = text(one, "/eval_time").strip_suffix('m').unwrap();
            let minute: u32 = minute.parse().unwrap();
            if one["exp_alerts"].as_array().is_some_and(|all| !all.is_empty()) {
                fired.insert(name, minute);
            } else if fired.get(name).is_some_and(|fired| minute > *fired) {
                resolved.insert(name.to_owned());
            }
        }
    }
    for rule in rules(ALERTS) {
        let name = text(&rule, "/alert");
        assert!(resolved.contains(name), "{name} resolves in no test");
    }
}

#[test]
fn promtool_accepts_the_rules_and_runs_their_tests_tier3() {
    let test = "promtool_accepts_the_rules_and_runs_their_tests_tier3";
    let Some(promtool) = skip::need(3, test, parts::promtool()).unwrap() else {
        return;
    };
    for (verb, file) in [
        ("check", "virtfleet.yaml"),
        ("test", "virtfleet.test.yaml"),
        ("check", "virtfleet-recording.yaml"),
        ("test", "virtfleet-recording.test.yaml"),
    ] {
        let said = Launch::new(&promtool)
            .args([verb, "rules"])
            .arg(root().join("packaging/collector/rules").join(file))
            .text(Duration::from_mins(1))
            .unwrap();
        assert!(said.contains("SUCCESS"), "{said}");
    }
}
