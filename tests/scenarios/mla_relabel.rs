//! Relabelling beside a real Prometheus: the same rules and labels have the same result.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use anyhow::ensure;
use serde_json::Value;
use virtfleet_collector_core::mla::relabel::{
    CompiledRules, LabelValue, RelabelRule, RelabelVerdict, WorkingLabels,
};
use virtfleet_tests::{parts, ports, process::Launch, scrape::Client, skip, stage::STAGE_TIMEOUT, wait};

const TIER: u8 = 3;

/// Each list of rules is applied to each of [`LABELS`]. None has a `labelmap` of several labels to
/// one: Prometheus holds the labels of a target in a Go map, so the result would be random.
const RULES: &[&str] = &[
    "[]",
    r#"[{"sourceLabels":["a"],"regex":"f(.*)","targetLabel":"d","replacement":"ch${1}-ch$1"}]"#,
    r#"[{"sourceLabels":["a","b"],"regex":"(.*);(.*)r","targetLabel":"a","replacement":"$2$1"},
        {"sourceLabels":["a","c"],"separator":"/","targetLabel":"e"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"fo+|x","action":"drop"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"f|o","action":"keep"}]"#,
    r#"[{"sourceLabels":["a"],"regex":".*","action":"keep"}]"#,
    r#"[{"sourceLabels":["none"],"regex":".+","action":"drop"}]"#,
    r#"[{"sourceLabels":["none"],"regex":"","action":"keep"}]"#,
    r#"[{"sourceLabels":["a"],"targetLabel":"b","action":"keepequal"}]"#,
    r#"[{"sourceLabels":["a"],"targetLabel":"b","action":"dropequal"}]"#,
    r#"[{"sourceLabels":["a","b"],"targetLabel":"h","modulus":1000,"action":"hashmod"}]"#,
    r#"[{"sourceLabels":["a"],"targetLabel":"h","modulus":18446744073709551615,"action":"hashmod"}]"#,
    r#"[{"regex":"([a-c])(1*)","replacement":"x_${1}$2","action":"labelmap"}]"#,
    r#"[{"regex":"a|b1?","action":"labeldrop"}]"#,
    r#"[{"regex":"a|id|__.*","action":"labelkeep"}]"#,
    r#"[{"sourceLabels":["a","b"],"targetLabel":"l","action":"lowercase"},
        {"sourceLabels":["a","b"],"targetLabel":"u","action":"uppercase"}]"#,
    r#"[{"targetLabel":"b","replacement":""}]"#,
    r#"[{"targetLabel":"b"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"(?P<first>.)(?P<rest>.*)","targetLabel":"n_${first}","replacement":"${rest}$$1$"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"(.)(.*)","targetLabel":"t","replacement":"[$2][$3][${none}][$1x][${1}x][$01]"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"(?i)FOO","targetLabel":"i","replacement":"folded"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"\\w+","targetLabel":"w","replacement":"word"},
        {"sourceLabels":["a"],"regex":"\\D+","targetLabel":"nd","replacement":"no digit"},
        {"sourceLabels":["a"],"regex":".*\\s.*","targetLabel":"s","replacement":"space"},
        {"sourceLabels":["a"],"regex":"[\\d[:alpha:]]*","targetLabel":"al","replacement":"ascii"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"[[a&&b-f]oo|\\Qa.b\\E|\\x66oo|.*\\pL.*","targetLabel":"p","replacement":"dialect"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"a{,2}|fo{2}|.{3,4}","targetLabel":"r","replacement":"repeated"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"f.*\\b|.*\\bbar","targetLabel":"wb","replacement":"boundary"}]"#,
    r#"[{"sourceLabels":["a"],"regex":"foo|b","targetLabel":"a","replacement":"$1"}]"#,
];

/// Labels of the targets, as JSON.
const LABELS: &[&str] = &[
    r#"{"a":"foo","b":"bar","c":"baz"}"#,
    r#"{"a":"foo\nbar","b":"foo\nbar"}"#,
    r#"{"a":"FOO","b":"foo","b1":"x"}"#,
    r#"{"a":"x","a1":"y","c11":"z"}"#,
    r#"{"b":"r"}"#,
    r#"{"a":"a.b","b":"é ſ K"}"#,
    r#"{"a":"ΑΣ Straße ǰ İ ᾳ","b":"ñ"}"#,
    r#"{"a":"a{,2}","c":"$1"}"#,
    r#"{"a":"aa 1","b":"aa 1"}"#,
    r#"{"a":"٣","b":""}"#,
];

fn config() -> String {
    let mut text = String::from("scrape_configs:\n");
    for (job, rules) in RULES.iter().enumerate() {
        let rules = rules
            .replace("sourceLabels", "source_labels")
            .replace("targetLabel", "target_label");
        // The targets are never scraped within the test.
        write!(
            text,
            "- job_name: \"{job}\"\n  scrape_interval: 1d\n  relabel_configs: {rules}\n  static_configs:\n"
        )
        .unwrap();
        for (id, labels) in LABELS.iter().enumerate() {
            let labels = labels.replacen('{', &format!("{{\"id\":\"{id}\","), 1);
            writeln!(text, "  - {{ targets: [\"127.0.0.1:1\"], labels: {labels} }}").unwrap();
        }
    }
    text
}

fn text_map(labels: &Value) -> BTreeMap<String, String> {
    let labels = labels.as_object().unwrap().iter();
    labels
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

/// The labels of a target as Prometheus shows them; none if it is dropped.
fn relabelled(rules: &str, discovered: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    let rules: Vec<RelabelRule> = serde_json::from_str(rules).unwrap();
    let rules = CompiledRules::new(&rules).unwrap();
    let labels = discovered.iter();
    let labels = labels.map(|(name, value)| (name.as_str().into(), LabelValue::Text(value.as_str().into())));
    let mut labels = WorkingLabels::new(labels.collect());
    if rules.apply(&mut labels) != RelabelVerdict::Kept {
        return None;
    }
    let mut shown = BTreeMap::new();
    for (name, value) in labels.into_sorted() {
        let LabelValue::Text(value) = value else {
            unreachable!()
        };
        shown.insert(name.to_string(), value.to_string());
    }
    let address = shown.get("__address__").cloned().unwrap_or_default();
    shown.entry("instance".to_owned()).or_insert(address);
    shown.retain(|name, _| !name.starts_with("__"));
    Some(shown)
}

#[test]
fn tier3_rules_have_the_result_that_they_have_in_prometheus() {
    let test = "tier3_rules_have_the_result_that_they_have_in_prometheus";
    let Some(program) = skip::need(TIER, test, parts::prometheus()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let address = ports::free().unwrap();
    let file = folder.path().join("prometheus.yml");
    fs::write(&file, config()).unwrap();
    let mut prometheus = Launch::new(program)
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}/data", folder.path().display()))
        .arg(format!("--web.listen-address={address}"))
        .start(folder.path())
        .unwrap();
    prometheus.wait_for_port(address, STAGE_TIMEOUT).unwrap();
    let targets = wait::eventually(STAGE_TIMEOUT, "all targets are there", || {
        let answer = Client::plain(address, STAGE_TIMEOUT)?
            .get("/api/v1/targets")?
            .ok()?
            .json()?;
        let count = |list: &str| answer["data"][list].as_array().map_or(0, Vec::len);
        let all = count("activeTargets") + count("droppedTargets");
        ensure!(all == RULES.len() * LABELS.len(), "{all}");
        Ok(answer["data"].clone())
    })
    .unwrap();
    let mut seen = BTreeSet::new();
    for (list, is_active) in [("activeTargets", true), ("droppedTargets", false)] {
        for target in targets[list].as_array().unwrap() {
            let discovered = text_map(&target["discoveredLabels"]);
            let job: usize = discovered["job"].parse().unwrap();
            let mut expected = is_active.then(|| text_map(&target["labels"]));
            // Prometheus 3 allows names in UTF-8. Cortex and Mimir do not, so no rule makes one.
            if let Some(expected) = &mut expected {
                expected.retain(|name, _| name.is_ascii());
            }
            let rules = RULES[job];
            assert_eq!(
                relabelled(rules, &discovered),
                expected,
                "{rules} on {discovered:?}"
            );
            seen.insert((job, discovered["id"].clone()));
        }
    }
    assert_eq!(seen.len(), RULES.len() * LABELS.len());
}
