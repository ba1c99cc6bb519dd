use super::*;

/// Labels of a test, as `a=1,b=2`.
fn labels(text: &str) -> WorkingLabels {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.into(), LabelValue::Text(value.into())));
    WorkingLabels::new(pairs.collect())
}

fn shown(labels: WorkingLabels) -> String {
    let shown = labels.into_sorted().into_iter().map(|(name, value)| match value {
        LabelValue::Text(text) => format!("{name}={text}"),
        LabelValue::Target(index) => format!("{name}=<{index}>"),
    });
    shown.collect::<Vec<_>>().join(",")
}

fn compile(rules: &str) -> Result<CompiledRules, RelabelError> {
    let rules: Vec<RelabelRule> = serde_json::from_str(rules).unwrap();
    CompiledRules::new(&rules)
}

/// The labels after the rules (JSON); none if the series is dropped.
fn relabel(input: &str, rules: &str) -> Option<String> {
    let mut labels = labels(input);
    match compile(rules).unwrap().apply(&mut labels) {
        RelabelVerdict::Kept => Some(shown(labels)),
        RelabelVerdict::Dropped => None,
        other => panic!("{other:?}"),
    }
}

/// Labels, rules (JSON), and the labels afterwards.
const CASES: &[(&str, &str, Option<&str>)] = &[
    (
        "a=foo,b=bar",
        r#"[{"sourceLabels":["a"],"regex":"f(.*)","targetLabel":"d","replacement":"ch${1}-ch${1}"}]"#,
        Some("a=foo,b=bar,d=choo-choo"),
    ),
    (
        "a=foo,b=bar,c=baz",
        r#"[{"sourceLabels":["a","b"],"regex":"f(.*);(.*)r","targetLabel":"a","replacement":"b${1}${2}m"},
                {"sourceLabels":["c","a"],"regex":"(b).*b(.*)ba(.*)","targetLabel":"d","replacement":"$1$2$2$3"}]"#,
        Some("a=boobam,b=bar,c=baz,d=boooom"),
    ),
    (
        "a=foo",
        r#"[{"sourceLabels":["a"],"regex":".*o.*","action":"drop"}]"#,
        None,
    ),
    (
        "a=foo",
        r#"[{"sourceLabels":["a"],"regex":"f|o","action":"drop"}]"#,
        Some("a=foo"),
    ),
    (
        "a=foo",
        r#"[{"sourceLabels":["a"],"regex":"fo","action":"keep"}]"#,
        None,
    ),
    (
        "a=foo",
        r#"[{"sourceLabels":["a"],"regex":"f.*","action":"keep"}]"#,
        Some("a=foo"),
    ),
    (
        "a=foo",
        r#"[{"sourceLabels":["none"],"regex":"","action":"keep"}]"#,
        Some("a=foo"),
    ),
    (
        "c=baz",
        r#"[{"sourceLabels":["c"],"targetLabel":"d","action":"hashmod","modulus":1000}]"#,
        Some("c=baz,d=976"),
    ),
    (
        "a=foo,b1=bar,b2=baz",
        r#"[{"regex":"(b.*)","replacement":"bar_${1}","action":"labelmap"}]"#,
        Some("a=foo,b1=bar,b2=baz,bar_b1=bar,bar_b2=baz"),
    ),
    // Both get the name `x`: the label that was changed last wins.
    (
        "a=1,b=2",
        r#"[{"targetLabel":"a","replacement":"3"},{"regex":"[ab]","replacement":"x","action":"labelmap"}]"#,
        Some("a=3,b=2,x=3"),
    ),
    ("a1=1", r#"[{"regex":"a(.*)","action":"labelmap"}]"#, Some("a1=1")),
    (
        "a=some-name-value",
        r#"[{"sourceLabels":["a"],"regex":"some-([^-]+)-([^,]+)","replacement":"${2}","targetLabel":"${1}"}]"#,
        Some("a=some-name-value,name=value"),
    ),
    // An empty result removes the label, an invalid name does nothing.
    (
        "a=1,b=2",
        r#"[{"targetLabel":"b","replacement":""}]"#,
        Some("a=1"),
    ),
    (
        "a=1-x",
        r#"[{"sourceLabels":["a"],"regex":"(.)-(.)","replacement":"$2","targetLabel":"$1"}]"#,
        Some("a=1-x"),
    ),
    (
        "a=foo,b1=x",
        r#"[{"regex":"b.*","action":"labeldrop"}]"#,
        Some("a=foo"),
    ),
    (
        "a=foo,b1=x",
        r#"[{"regex":"b.*","action":"labelkeep"}]"#,
        Some("b1=x"),
    ),
    (
        "a=bAr1",
        r#"[{"sourceLabels":["a"],"targetLabel":"u","action":"uppercase"},
                {"sourceLabels":["a"],"targetLabel":"l","action":"lowercase"}]"#,
        Some("a=bAr1,l=bar1,u=BAR1"),
    ),
    (
        "a=1,b=1",
        r#"[{"sourceLabels":["a"],"targetLabel":"b","action":"keepequal"}]"#,
        Some("a=1,b=1"),
    ),
    (
        "a=1,b=2",
        r#"[{"sourceLabels":["a"],"targetLabel":"b","action":"keepequal"}]"#,
        None,
    ),
    (
        "a=1,b=1",
        r#"[{"sourceLabels":["a"],"targetLabel":"b","action":"dropequal"}]"#,
        None,
    ),
    (
        "a=1",
        r#"[{"sourceLabels":["c"],"targetLabel":"b","action":"dropequal"}]"#,
        None,
    ),
    (
        "a=1,b=2",
        r#"[{"sourceLabels":["a","b"],"separator":"","targetLabel":"c"}]"#,
        Some("a=1,b=2,c=12"),
    ),
];

#[test]
fn each_action_does_what_prometheus_does() {
    for (input, rules, expected) in CASES {
        assert_eq!(relabel(input, rules).as_deref(), *expected, "{input} {rules}");
    }
    let mut line_feed = WorkingLabels::new(vec![("a".into(), LabelValue::Text("foo\nbar".into()))]);
    let rules = r#"[{"sourceLabels":["a"],"targetLabel":"b","action":"hashmod","modulus":1000}]"#;
    compile(rules).unwrap().apply(&mut line_feed);
    assert_eq!(line_feed.get("b"), Some(&LabelValue::Text("734".into())));
}

#[test]
fn invalid_rules_are_rejected_with_their_index_and_reason() {
    for (rule, why) in [
        (r#"{"action":"replace"}"#, "replace requires targetLabel"),
        (
            r#"{"action":"lowercase","targetLabel":"${3}"}"#,
            "is no valid targetLabel for lowercase",
        ),
        (
            r#"{"targetLabel":"0${3}"}"#,
            "is no valid targetLabel for replace",
        ),
        (
            r#"{"targetLabel":"-${3}"}"#,
            "is no valid targetLabel for replace",
        ),
        (r#"{"action":"hashmod","targetLabel":"a"}"#, "modulus above 0"),
        (
            r#"{"action":"labeldrop","sourceLabels":["a"]}"#,
            "takes regex only",
        ),
        (
            r#"{"action":"keepequal","targetLabel":"a","regex":"x"}"#,
            "sourceLabels and targetLabel only",
        ),
        (
            r#"{"action":"uppercase","targetLabel":"a","replacement":"x"}"#,
            "takes no replacement",
        ),
        (
            r#"{"action":"labelmap","replacement":"-"}"#,
            "no valid replacement",
        ),
        (r#"{"action":"keep","regex":"("}"#, "invalid regex"),
        (
            r#"{"action":"keep","sourceLabels":["a-b"]}"#,
            "no valid label name",
        ),
    ] {
        let rules = format!(r#"[{{"targetLabel":"a"}},{rule}]"#);
        let error = compile(&rules).unwrap_err();
        assert_eq!(error.index, 1, "{rule}");
        assert!(error.why.contains(why), "{rule}: {error}");
    }
    let many = vec![
        RelabelRule {
            action: RelabelAction::Keep,
            ..RelabelRule::default()
        };
        MAX_RULES + 1
    ];
    assert!(CompiledRules::new(&many).is_err());
    serde_json::from_str::<RelabelRule>(r#"{"source_labels":["a"]}"#).unwrap_err();
}

#[test]
fn rules_that_drop_everything() {
    let mut labels = labels("__name__=a,b=c");
    assert_eq!(
        CompiledRules::drop_all().apply(&mut labels),
        RelabelVerdict::Dropped
    );
}

#[test]
fn rules_cannot_make_a_series_without_limit() {
    let double = r#"{"sourceLabels":["a"],"targetLabel":"a","replacement":"$1$1"}"#;
    let rules = format!("[{}]", vec![double; 100].join(","));
    let verdict = compile(&rules).unwrap().apply(&mut labels("a=xx"));
    assert_eq!(verdict, RelabelVerdict::OverLimit);
    let more = r#"{"regex":"(.*)","replacement":"x_$1","action":"labelmap"}"#;
    let rules = format!("[{}]", vec![more; 100].join(","));
    let verdict = compile(&rules).unwrap().apply(&mut labels("a=xx"));
    assert_eq!(verdict, RelabelVerdict::OverLimit);
}

#[test]
fn values_of_the_target_are_moved_but_not_read() {
    let stamped = |rules: &str| {
        let mut labels = WorkingLabels::new(vec![
            ("__name__".into(), LabelValue::Text("up".into())),
            ("instance".into(), LabelValue::Target(2)),
        ]);
        let verdict = compile(rules).unwrap().apply(&mut labels);
        (verdict, shown(labels))
    };
    let moved = stamped(
        r#"[{"sourceLabels":["__name__"],"regex":"u.","action":"keep"},
            {"regex":"instance","replacement":"node","action":"labelmap"},
            {"regex":"instance","action":"labeldrop"}]"#,
    );
    assert_eq!(moved, (RelabelVerdict::Kept, "__name__=up,node=<2>".to_owned()));
    let copied = stamped(r#"[{"sourceLabels":["instance"],"targetLabel":"node_name"}]"#);
    let both = "__name__=up,instance=<2>,node_name=<2>".to_owned();
    assert_eq!(copied, (RelabelVerdict::Kept, both));
    for rule in [
        r#"[{"sourceLabels":["instance"],"regex":"(.)","targetLabel":"x"}]"#,
        r#"[{"sourceLabels":["instance","__name__"],"targetLabel":"x"}]"#,
        r#"[{"sourceLabels":["__name__"],"targetLabel":"instance","action":"keepequal"}]"#,
    ] {
        assert_eq!(stamped(rule).0, RelabelVerdict::DependsOnTarget, "{rule}");
    }
}
