use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::layered::tree::Origin;
use crate::settings::{AGENT_CONFIG_KIND, AgentConfig, CONFIG_API_VERSION, LogLevel, agent_config_schema};

const EXPECT: Expect<'_> = Expect {
    api_version: CONFIG_API_VERSION,
    kind: AGENT_CONFIG_KIND,
};
const HEAD: &str = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n";

fn agent(texts: &[&str]) -> Loaded<AgentConfig> {
    let fragments: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| Fragment {
            file: format!("{index}.yaml"),
            text: format!("{HEAD}{text}"),
        })
        .collect();
    load(&fragments, EXPECT, &["server", "log"])
}

fn problems<T>(loaded: &Loaded<T>) -> Vec<String> {
    loaded.problems.iter().map(Problem::to_string).collect()
}

#[test]
fn no_fragment_gives_the_default() {
    let loaded = agent(&[]);
    assert_eq!(loaded.value, AgentConfig::default());
    assert_eq!(problems(&loaded), [""; 0]);
    assert_eq!(loaded.origins.of("server.maxConnections"), Origin::Default);
}

#[test]
fn each_value_knows_who_set_it() {
    let loaded = agent(&[
        "server:\n  maxConnections: 3\n  listeners:\n  - name: local\n    address: 127.0.0.1:1\n",
        "server:\n  listeners:\n  - name: local\n    plain: true\n",
    ]);
    assert_eq!(problems(&loaded), [""; 0]);
    assert_eq!(loaded.value.server.listeners.len(), 2);
    assert!(loaded.value.server.listeners[1].plain);
    for (path, origin) in [
        ("server.maxConnections", "0.yaml:4"),
        ("server.listeners[local].address", "0.yaml:7"),
        ("server.listeners[local].plain", "1.yaml:6"),
        ("server.listeners[default].plain", "(default)"),
        ("server.tls.certificate", "(default)"),
        ("server.listeners[local].nothing", "1.yaml:5"),
    ] {
        assert_eq!(loaded.origins.of(path).to_string(), origin, "{path}");
    }
}

#[test]
fn every_problem_is_named_and_its_section_alone_is_not_applied() {
    let loaded = agent(&[
        "server:\n  maxConections: 3\n  maxRequests: many\n  requestTimeout: 7s\nlog: {level: debg}\n",
        "metrics:\n  filesystem: {mountTimeout: 5}\n  collectors: {cpu: false, wrong: 1}\nprovison: {}\nlevel: x\n",
        "server: {maxConnections: 0}\nmetrics: {netdev: {deviceExlude: a}}\n",
    ]);
    assert_eq!(
        problems(&loaded),
        [
            "0.yaml:4: server.maxConections: unknown key (did you mean maxConnections?)",
            "0.yaml:5: server.maxRequests: invalid type: string \"many\", expected u32",
            "0.yaml:7: log.level: unknown variant `debg`, expected one of `error`, `warn`, `info`, `debug`, \
             `trace` (did you mean debug?)",
            "1.yaml:4: metrics.filesystem.mountTimeout: invalid type: integer `5`, expected a string",
            "1.yaml:5: metrics.collectors.wrong: invalid type: integer `1`, expected a boolean",
            "1.yaml:6: provison: unknown key",
            "1.yaml:7: level: unknown key (did you mean log.level?)",
            "2.yaml:3: server.maxConnections: 0 is less than 1",
            "2.yaml:4: metrics.netdev.deviceExlude: unknown key (did you mean deviceExclude?)",
        ]
    );
    let expected = AgentConfig {
        server: crate::settings::ServerSettings {
            request_timeout: crate::settings::Span::seconds(7),
            ..Default::default()
        },
        ..Default::default()
    };
    assert_eq!(
        loaded.value, expected,
        "kept sections lose only the wrong keys; metrics are the default's"
    );
    assert_eq!(loaded.origins.of("metrics.collectors"), Origin::Default);
    assert_eq!(loaded.value.log.level, LogLevel::Info);
}

#[test]
fn keys_of_earlier_versions_are_ignored_and_their_section_applies() {
    let loaded = agent(&[
        "metrics:\n  rapl: {zoneLabel: true}\n  powersupplyclass: {ignored: \"(\"}\n  collectors: {edac: false, cpu: false}\n",
        "metrics:\n  tapestats: ~\n  maxSeriesOf: {thermal_zone: many, cpu: 9}\n  collectors: {cpufreq: 1}\n",
    ]);
    assert_eq!(problems(&loaded), [""; 0]);
    let ignored: Vec<_> = loaded.ignored.iter().map(Problem::to_string).collect();
    let key = |place: &str| format!("{place}: no longer has an effect and is ignored; remove it");
    assert_eq!(
        ignored,
        [
            key("0.yaml:4: metrics.rapl"),
            key("0.yaml:5: metrics.powersupplyclass"),
            key("0.yaml:6: metrics.collectors.edac"),
            key("1.yaml:4: metrics.tapestats"),
            key("1.yaml:5: metrics.maxSeriesOf.thermal_zone"),
            key("1.yaml:6: metrics.collectors.cpufreq"),
        ]
    );
    let metrics = &loaded.value.metrics;
    assert_eq!(metrics.collectors, BTreeMap::from([("cpu".to_owned(), false)]));
    assert_eq!(metrics.max_series_of, BTreeMap::from([("cpu".to_owned(), 9)]));
    let leaves = &loaded.origins.leaves;
    assert!(
        !leaves.iter().any(|leaf| leaf.path.contains("rapl")),
        "{leaves:?}"
    );

    let wrong = agent(&["rapl: {}\nmetrics: {rpl: {}}\n"]);
    assert_eq!(
        problems(&wrong),
        [
            "0.yaml:3: rapl: unknown key",
            "0.yaml:4: metrics.rpl: unknown key"
        ],
        "no other key is accepted, and none is suggested"
    );
}

#[test]
fn a_foreign_or_broken_fragment_is_left_out_whole() {
    let fragment = |file: &str, text: &str| Fragment {
        file: file.to_owned(),
        text: text.to_owned(),
    };
    let loaded: Loaded<AgentConfig> = load(
        &[
            fragment("empty", "# nothing\n"),
            fragment("broken", "a: [1\n"),
            fragment("kind", "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfg\n"),
            fragment(
                "version",
                "kind: AgentConfig\napiVersion: virtfleet.io/v2\nlog: {level: debug}\n",
            ),
            fragment("bare", "log: {level: debug}\n"),
            fragment("list", "- 1\n"),
            fragment("two", &format!("{HEAD}---\n{HEAD}")),
            fragment("good", &format!("{HEAD}log: {{level: warn}}\n")),
        ],
        EXPECT,
        &[],
    );
    assert_eq!(
        loaded.skipped,
        ["broken", "kind", "version", "bare", "list", "two"]
    );
    assert_eq!(loaded.value.log.level, LogLevel::Warn);
    let lines = problems(&loaded);
    assert!(lines[0].starts_with("broken:2: not YAML: "), "{lines:?}");
    assert_eq!(
        lines[1..],
        [
            "kind:2: kind is \"AgentConfg\", expected AgentConfig",
            "version:2: apiVersion is \"virtfleet.io/v2\", expected virtfleet.io/v1alpha1",
            "bare:1: apiVersion is missing, expected virtfleet.io/v1alpha1",
            "list:1: apiVersion is missing, expected virtfleet.io/v1alpha1",
            "two:4: a second document; a settings file has only one",
        ]
    );
}

#[test]
fn a_line_stays_a_line() {
    let loaded = agent(&["\"a\\nb\\e[31m\": 1\nlog: {level: \"x\\ny\"}\n"]);
    for line in problems(&loaded) {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    assert_eq!(loaded.problems.len(), 2);
}

/// Shapes that the agent's settings do not have: required fields, options of structs, enums with
/// content, free JSON.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Odd {
    api_version: String,
    kind: String,
    one: Option<Inner>,
    many: BTreeMap<String, Inner>,
    ways: Vec<Way>,
    free: Value,
}
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Inner {
    /// Deprecated, and still read.
    #[schemars(extend("deprecated" = true))]
    count: u8,
    #[serde(default)]
    words: Vec<String>,
}
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Way {
    File { path: String },
    Nothing,
}

#[test]
fn schemas_of_every_usual_shape_are_walked() {
    let text = format!(
        "{HEAD}one: {{count: 1, wrds: [a]}}\nmany:\n  a: {{words: [x]}}\n  b: {{count: 300}}\n  c: {{cout: 1}}\n\
         ways: [nothing, {{file: {{path: /x}}}}, {{file: {{pth: /x}}}}]\nfree: {{anything: [{{goes: 1}}]}}\n"
    );
    let fragments = [Fragment {
        file: "f".into(),
        text,
    }];
    let loaded: Loaded<Odd> = load(&fragments, EXPECT, &["one", "many", "ways"]);
    assert_eq!(
        problems(&loaded),
        [
            "f:3: one.wrds: unknown key (did you mean words?)",
            "f:5: many.a: missing field `count`",
            "f:6: many.b.count: 300 is more than 255",
            "f:7: many.c.cout: unknown key (did you mean count?)",
            "f:8: ways[2].file.pth: unknown key (did you mean path?)",
        ]
    );
    assert_eq!(
        loaded.value.one,
        Some(Inner {
            count: 1,
            words: vec![]
        })
    );
    assert_eq!(loaded.value.many, BTreeMap::new());
    assert_eq!(loaded.value.ways, [Way::Nothing, Way::File { path: "/x".into() }]);
    assert_eq!(loaded.value.free, serde_json::json!({"anything": [{"goes": 1}]}));
}

fn known_keys() -> Vec<String> {
    fn collect(schema: &Value, keys: &mut Vec<String>) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            keys.extend(properties.keys().cloned());
        }
        for value in schema.as_object().into_iter().flat_map(|map| map.values()) {
            collect(value, keys);
        }
    }
    let mut keys = Vec::new();
    collect(&agent_config_schema(), &mut keys);
    keys
}

proptest! {
    #[test]
    fn an_unknown_key_is_always_found(key in "[a-zA-Z]{1,12}", place in 0usize..5) {
        prop_assume!(!known_keys().contains(&key));
        let places = ["", "server: {", "server: {tls: {", "metrics: {netdev: {", "server: {listeners: [{name: x, "];
        let open = places[place];
        let close: String = open
            .chars()
            .rev()
            .filter_map(|c| match c { '{' => Some('}'), '[' => Some(']'), _ => None })
            .collect();
        let loaded = agent(&["# first", &format!("{open}\n {key}: 1\n {close}").replace("\n ", if open.is_empty() { "\n" } else { "\n " })]);
        prop_assert_eq!(loaded.problems.len(), 1, "{:?}", loaded.problems);
        let problem = &loaded.problems[0];
        prop_assert!(problem.path.ends_with(&key) && problem.message == "unknown key", "{}", problem);
        prop_assert_eq!((problem.file.as_str(), problem.line), ("1.yaml", 4));
    }

    #[test]
    fn no_text_panics_or_half_applies(text in "(log|server|metrics|level|listeners|name|tls|: |\\{|\\}|\\[|\\]|\n|  |- |~|1|x|,){0,30}") {
        let loaded = agent(&[&text, "log: {format: json}"]);
        let again: Loaded<AgentConfig> = load(
            &[Fragment { file: "again".into(), text: serde_json::to_string(&loaded.value).unwrap() }],
            EXPECT,
            &[],
        );
        prop_assert_eq!(problems(&again), [""; 0]);
        prop_assert_eq!(again.value.log, loaded.value.log);
    }
}
