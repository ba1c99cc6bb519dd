use std::collections::BTreeMap;

use proptest::prelude::*;
use virtfleet_wire::exposition::{Line, is_metric_name, parse_line};

use super::*;
use crate::mla::{
    FamilyTable,
    page_reader::PageReader,
    page_rules::{SampleLimits, is_withheld},
    relabel::{LabelValue, RelabelRule, RelabelVerdict, WorkingLabels},
    symbols::SymbolId,
};

#[path = "stream_limit_tests.rs"]
mod limits;

/// Labels as text.
type Labels = Vec<(String, String)>;

/// A receiver that knows which series are live.
#[derive(Debug, Default)]
struct Receiver {
    written: Vec<(Labels, i64, u64)>,
    live: BTreeMap<Labels, i64>,
}

impl SampleSink for Receiver {
    fn sample(&mut self, series: &OutSeries<'_>, timestamp_ms: i64, value: f64) {
        let text = |id: SymbolId| series.symbols.text(id).to_owned();
        let labels: Labels = series
            .labels
            .iter()
            .map(|(name, value)| (text(*name), text(*value)))
            .collect();
        assert!(
            labels.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "unsorted: {labels:?}"
        );
        assert!(
            labels
                .iter()
                .all(|(name, value)| !name.is_empty() && !value.is_empty())
        );
        if value.to_bits() == STALE_NAN {
            let last = self.live.remove(&labels);
            assert!(
                last.is_some_and(|last| last < timestamp_ms),
                "{labels:?} was not live"
            );
        } else {
            let last = self.live.insert(labels.clone(), timestamp_ms);
            assert!(
                last.is_none_or(|last| last < timestamp_ms),
                "{labels:?} is there twice"
            );
        }
        self.written.push((labels, timestamp_ms, value.to_bits()));
    }
}

impl Receiver {
    /// The live series as text, without those about the pull.
    fn live(&self) -> Vec<String> {
        let shown = |labels: &Labels| {
            let pairs = labels.iter().map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>().join(",")
        };
        let guests = self.live.keys().filter(|labels| !is_about_pull(labels));
        guests.map(shown).collect()
    }

    fn value(&self, name: &str) -> f64 {
        let has_name = |labels: &Labels| labels.iter().any(|(_, value)| value == name);
        let last = self.written.iter().rev().find(|(labels, _, _)| has_name(labels));
        f64::from_bits(last.unwrap().2)
    }
}

fn is_about_pull(labels: &Labels) -> bool {
    let is_one = |name: &str| name == "up" || name.starts_with("scrape_");
    labels
        .iter()
        .any(|(name, value)| name == "__name__" && is_one(value))
}

struct Stage {
    table: Arc<FamilyTable>,
    share: Arc<TableShare>,
    stream: StreamSeries,
    receiver: Receiver,
    last: BTreeMap<SourceKey, PageSeries>,
    at_ms: i64,
}

fn stamp() -> StampLabels {
    StampLabels {
        per_vm: vec!["instance".into(), "zone".into()],
        constant: vec![("job".into(), "node".into())],
        external: vec![("dc".into(), "d1".into())],
    }
}

fn rules(json: &str) -> CompiledRules {
    let rules: Vec<RelabelRule> = serde_json::from_str(json).unwrap();
    CompiledRules::new(&rules).unwrap()
}

fn vm(name: &str) -> SourceKey {
    SourceKey::Vm(VmKey {
        namespace: "ns".parse().unwrap(),
        name: name.parse().unwrap(),
    })
}

fn targets(values: [&str; 2]) -> TargetValues {
    values.map(Arc::from).into()
}

impl Stage {
    fn new(json: &str) -> Self {
        let table = Arc::new(FamilyTable::default());
        let share = table.share();
        Self {
            stream: StreamSeries::new(&share, stamp(), rules(json)),
            table,
            share,
            receiver: Receiver::default(),
            last: BTreeMap::new(),
            at_ms: 1000,
        }
    }

    fn page(&mut self, source: &SourceKey, values: [&str; 2], text: &str) -> StreamPageResult {
        let last = self.last.get(source).cloned().unwrap_or_default();
        let mut reader = PageReader::new(Arc::clone(&self.share), SampleLimits::new(100), last);
        for line in text.lines() {
            reader.read(line).unwrap();
        }
        let page = reader.finish().unwrap();
        self.last.insert(source.clone(), page.series());
        self.at_ms += 1000;
        let time = PullTime {
            at_ms: self.at_ms,
            seconds: 0.25,
        };
        self.stream
            .page(source, &targets(values), &page, time, &mut self.receiver)
    }

    fn failed(&mut self, source: &SourceKey, values: [&str; 2]) -> StreamPageResult {
        self.at_ms += 1000;
        let time = PullTime {
            at_ms: self.at_ms,
            seconds: 3.0,
        };
        self.stream
            .failed(source, &targets(values), time, &mut self.receiver)
    }

    fn gone(&mut self, source: &SourceKey) -> u64 {
        self.stream.gone(source, self.at_ms, &mut self.receiver)
    }
}

#[test]
fn series_are_stamped_and_a_guest_cannot_set_the_labels() {
    let mut stage = Stage::new("[]");
    let text = "a{instance=\"evil\",exported_instance=\"x\",zone=\"fake\",dc=\"d2\",job=\"j\"} 1\n";
    let result = stage.page(&vm("v"), ["node-1", ""], text);
    assert_eq!((result.written, result.added, result.dropped), (6, 1, 0));
    assert_eq!(
        stage.receiver.live(),
        [
            "__name__=a,dc=d1,exported_dc=d2,exported_exported_instance=evil,exported_instance=x,\
          exported_job=j,exported_zone=fake,instance=node-1,job=node"
        ]
    );
    for (name, value) in [
        ("up", 1.0),
        ("scrape_duration_seconds", 0.25),
        ("scrape_samples_scraped", 1.0),
        ("scrape_samples_post_metric_relabeling", 1.0),
        ("scrape_series_added", 1.0),
    ] {
        assert!(
            (stage.receiver.value(name) - value).abs() < f64::EPSILON,
            "{name}"
        );
    }
}

#[test]
fn series_end_when_they_or_the_vm_go() {
    let mut stage = Stage::new("[]");
    let (one, two) = (vm("one"), vm("two"));
    stage.page(&one, ["n1", "z"], "a 1\nb 1\n");
    stage.page(&two, ["n2", "z"], "a 1\n");
    assert_eq!(stage.receiver.live.len(), 3 + 10);
    let result = stage.page(&one, ["n1", "z"], "b 1\nc 1\n");
    assert_eq!((result.stale, result.added), (1, 1));
    let result = stage.failed(&one, ["n1", "z"]);
    assert_eq!((result.stale, result.written), (2, 5));
    assert_eq!(
        stage.receiver.live(),
        ["__name__=a,dc=d1,instance=n2,job=node,zone=z"]
    );
    assert!(stage.receiver.value("up").abs() < f64::EPSILON);
    assert_eq!(stage.stream.live_series(), 1);
    stage.page(&one, ["n1", "z"], "b 1\n");
    assert_eq!(stage.gone(&one), 6);
    assert_eq!(stage.gone(&one), 0);
    assert_eq!(stage.gone(&two), 6);
    assert!(stage.receiver.live.is_empty());
}

#[test]
fn other_labels_of_the_target_end_the_old_series() {
    let mut stage = Stage::new("[]");
    let one = vm("one");
    stage.page(&one, ["n1", "z1"], "a 1\n");
    assert_eq!(stage.page(&one, ["n1", "z1"], "a 2\n").stale, 0);
    let moved = stage.page(&one, ["n1", "z2"], "a 3\n");
    assert_eq!((moved.stale, moved.written), (6, 6));
    assert_eq!(
        stage.receiver.live(),
        ["__name__=a,dc=d1,instance=n1,job=node,zone=z2"]
    );
}

#[test]
fn other_rules_end_the_series_with_old_labels_only() {
    let mut stage = Stage::new("[]");
    let one = vm("one");
    stage.page(&one, ["n1", ""], "a 1\nb 1\n");
    let drop_a = r#"[{"sourceLabels":["__name__"],"regex":"a|scrape_.*","action":"drop"}]"#;
    stage.stream.configure(stamp(), rules(drop_a));
    let result = stage.page(&one, ["n1", ""], "a 2\nb 2\n");
    assert_eq!((result.stale, result.written, result.dropped), (5, 2, 5));
    assert_eq!(stage.receiver.live(), ["__name__=b,dc=d1,instance=n1,job=node"]);
    assert_eq!(
        stage.stream.generations.len(),
        1,
        "the old rules are not needed any more"
    );
}

#[test]
fn series_with_equal_labels_after_the_rules_are_written_once() {
    let mut stage = Stage::new(r#"[{"regex":"x","action":"labeldrop"}]"#);
    let one = vm("one");
    for expected in [6, 6] {
        let result = stage.page(&one, ["n1", ""], "a{x=\"1\"} 1\na{x=\"2\"} 2\n");
        assert_eq!((result.written, result.collided), (expected, 1));
        assert!((stage.receiver.value("a") - 1.0).abs() < f64::EPSILON);
    }
    // The other one is live now, under the same labels.
    assert_eq!(stage.page(&one, ["n1", ""], "a{x=\"2\"} 2\n").stale, 0);
}

#[test]
fn rules_that_read_the_target_have_an_outcome_for_each_vm() {
    let rules = r#"[{"sourceLabels":["instance"],"regex":"n(.)","targetLabel":"number"},
        {"sourceLabels":["instance"],"regex":"n3","action":"drop"}]"#;
    let mut stage = Stage::new(rules);
    for (name, instance) in [("one", "n1"), ("two", "n2"), ("three", "n3")] {
        stage.page(&vm(name), [instance, ""], "a 1\n");
    }
    assert_eq!(
        stage.receiver.live(),
        [
            "__name__=a,dc=d1,instance=n1,job=node,number=1",
            "__name__=a,dc=d1,instance=n2,job=node,number=2"
        ]
    );
    stage.page(&vm("one"), ["n4", ""], "a 1\n");
    assert_eq!(
        stage.receiver.live()[1],
        "__name__=a,dc=d1,instance=n4,job=node,number=4"
    );
}

#[test]
fn the_platform_writes_its_labels_itself() {
    let mut stage = Stage::new("[]");
    let text = "p{instance=\"i\",dc=\"own\"} 1\nq 1\n";
    let result = stage.page(&SourceKey::Platform, ["", ""], text);
    assert_eq!(result.written, 2);
    assert_eq!(
        stage.receiver.live(),
        ["__name__=p,dc=own,instance=i", "__name__=q,dc=d1"]
    );
}

#[test]
fn a_page_that_is_not_later_is_not_written() {
    let mut stage = Stage::new("[]");
    stage.page(&vm("one"), ["n1", ""], "a 1\n");
    stage.at_ms -= 1000;
    let result = stage.page(&vm("one"), ["n1", ""], "b 1\n");
    assert_eq!((result.not_later, result.written), (1, 0));
    stage.page(&vm("one"), ["n1", ""], "a 1\n");
    assert_eq!(stage.receiver.live().len(), 1);
}

#[test]
fn what_series_that_have_gone_needed_is_removed() {
    let mut stage = Stage::new("[]");
    for n in 0..600 {
        let lines: Vec<_> = (0..40).map(|m| format!("a{{n=\"{n}\",m=\"{m}\"}} 1\n")).collect();
        stage.page(&vm("one"), ["n1", ""], &lines.concat());
    }
    let sizes: Vec<_> = stage
        .stream
        .generations
        .values()
        .map(|one| one.symbols.cost())
        .collect();
    assert!(sizes.len() == 1 && sizes[0] < 70_000, "{sizes:?}");
    let bytes = stage.table.bytes();
    assert!(bytes < 20_000, "{bytes}");
}

/// What a page becomes, written down as simply as possible.
fn expected(text: &str, values: [&str; 2], rules: &CompiledRules) -> BTreeMap<Labels, u64> {
    let mut found = BTreeMap::new();
    let mut raw = Vec::new();
    for line in text.lines() {
        let Line::Sample(sample) = parse_line(line).unwrap() else {
            continue;
        };
        if is_withheld(&sample) {
            continue;
        }
        let mut labels: BTreeMap<String, String> = sample
            .labels
            .clone()
            .map(|label| {
                label
                    .map(|(name, value)| (name.to_owned(), value.into_owned()))
                    .unwrap()
            })
            .collect();
        labels.insert("__name__".to_owned(), sample.name.to_owned());
        labels.retain(|_, value| !value.is_empty());
        if raw.contains(&labels) {
            continue;
        }
        raw.push(labels.clone());
        let target = [
            ("instance", values[0]),
            ("zone", values[1]),
            ("job", "node"),
            ("dc", "d1"),
        ];
        let mut conflicts = Vec::new();
        for (name, value) in target {
            conflicts.extend(labels.remove(name).map(|own| (name.to_owned(), own)));
            if !value.is_empty() {
                labels.insert(name.to_owned(), value.to_owned());
            }
        }
        conflicts.sort_by_key(|(name, _)| name.len());
        for (mut name, value) in conflicts {
            while labels.contains_key(&name) || target.iter().any(|(reserved, _)| *reserved == name) {
                name = format!("exported_{name}");
            }
            labels.insert(name, value);
        }
        let labels = labels.iter();
        let labels =
            labels.map(|(name, value)| (name.as_str().into(), LabelValue::Text(value.as_str().into())));
        let mut labels = WorkingLabels::new(labels.collect());
        if rules.apply(&mut labels) != RelabelVerdict::Kept {
            continue;
        }
        let labels: Labels = labels
            .into_sorted()
            .into_iter()
            .map(|(name, value)| match value {
                LabelValue::Text(text) => (name.to_string(), text.to_string()),
                LabelValue::Target(_) => unreachable!(),
            })
            .collect();
        if labels
            .iter()
            .any(|(name, value)| name == "__name__" && is_metric_name(value))
        {
            found.entry(labels).or_insert(sample.value.to_bits());
        }
    }
    found
}

/// Rules of which a random selection is used.
const RULES: [&str; 9] = [
    r#"{"sourceLabels":["__name__"],"regex":"b","action":"drop"}"#,
    r#"{"sourceLabels":["x"],"regex":"1","targetLabel":"y","replacement":"r"}"#,
    r#"{"regex":"x|exported_.*","action":"labeldrop"}"#,
    r#"{"sourceLabels":["instance","x"],"targetLabel":"z"}"#,
    r#"{"regex":"(instance|zone)","replacement":"t_$1","action":"labelmap"}"#,
    r#"{"regex":"__name__|instance|x","action":"labelkeep"}"#,
    r#"{"sourceLabels":["x"],"targetLabel":"h","action":"hashmod","modulus":2}"#,
    r#"{"sourceLabels":["x"],"targetLabel":"zone","action":"dropequal"}"#,
    r#"{"sourceLabels":["x"],"regex":"2","targetLabel":"__name__","replacement":"c"}"#,
];

/// One line of a random page.
fn line() -> impl Strategy<Value = String> {
    let label = prop::sample::select(vec![
        "x=\"1\"",
        "x=\"2\"",
        "y=\"1\"",
        "instance=\"n1\"",
        "zone=\"2\"",
        "exported_zone=\"3\"",
        "y=\"\"",
        "__r__=\"1\"",
    ]);
    let labels = prop::collection::btree_map("[a-h]", label, 0..3).prop_map(|labels| {
        let mut seen = HashSet::new();
        let unique = labels
            .into_values()
            .filter(|label| seen.insert(label.split('=').next()));
        unique.collect::<Vec<_>>().join(",")
    });
    let sample = ("[abc]|up|virtfleet_vm_a", labels, 0..5_u8)
        .prop_map(|(name, labels, value)| format!("{name}{{{labels}}} {value}\n"));
    let meta = prop::sample::select(vec!["# TYPE a counter\n", "# HELP b B.\n", "# TYPE c gauge\n"]);
    prop_oneof![6 => sample, 1 => meta.prop_map(str::to_owned)]
}

#[derive(Debug, Clone)]
enum Event {
    Page { vm: usize, zone: usize, text: String },
    Failed { vm: usize },
    Gone { vm: usize },
    Rules(Vec<usize>),
}

fn event() -> impl Strategy<Value = Event> {
    let text = prop::collection::vec(line(), 0..8).prop_map(|lines| lines.concat());
    prop_oneof![
        6 => (0..2_usize, 0..2_usize, text).prop_map(|(vm, zone, text)| Event::Page { vm, zone, text }),
        1 => (0..2_usize).prop_map(|vm| Event::Failed { vm }),
        1 => (0..2_usize).prop_map(|vm| Event::Gone { vm }),
        1 => prop::collection::vec(0..RULES.len(), 0..3).prop_map(Event::Rules),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn the_receiver_has_what_the_last_pages_have(events in prop::collection::vec(event(), 1..12)) {
        let mut stage = Stage::new("[]");
        let mut compiled = rules("[]");
        let mut live: BTreeMap<usize, BTreeMap<Labels, u64>> = BTreeMap::new();
        for event in events {
            stage.receiver.written.clear();
            match event {
                Event::Rules(selected) => {
                    let json = selected.iter().map(|index| RULES[*index]).collect::<Vec<_>>().join(",");
                    compiled = rules(&format!("[{json}]"));
                    stage.stream.configure(stamp(), compiled.clone());
                    continue;
                }
                Event::Page { vm: index, zone, text } => {
                    let (name, instance) = [("one", "n1"), ("two", "n2")][index];
                    let values = [instance, ["", "2"][zone]];
                    stage.page(&vm(name), values, &text);
                    let expected = expected(&text, values, &compiled);
                    let written: BTreeMap<_, _> = stage.receiver.written.iter()
                        .filter(|(labels, _, bits)| *bits != STALE_NAN && !is_about_pull(labels))
                        .map(|(labels, _, bits)| (labels.clone(), *bits))
                        .collect();
                    prop_assert_eq!(&written, &expected);
                    live.insert(index, expected);
                }
                Event::Failed { vm: index } => {
                    stage.failed(&vm(["one", "two"][index]), [["n1", "n2"][index], ""]);
                    live.remove(&index);
                }
                Event::Gone { vm: index } => {
                    stage.gone(&vm(["one", "two"][index]));
                    live.remove(&index);
                }
            }
            let expected: HashSet<_> = live.values().flat_map(BTreeMap::keys).collect();
            let found: HashSet<_> = stage.receiver.live.keys().filter(|labels| !is_about_pull(labels)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
