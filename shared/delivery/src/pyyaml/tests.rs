use std::fmt::Write as _;

use super::{refusal::NOT_SUPPORTED, *};

/// PyYAML loads these, and the parser for YAML 1.2 does not, or gives another error.
#[test]
fn what_pyyaml_loads_is_loaded() {
    for text in [
        "",
        "# only a comment",
        "--- ~\n...\n",
        "a: b",
        "---\na: b\n...\n# end\n...\n",
        "runcmd: [\n[sh, -c, \"x\"]\n]\n",
        "a: \"b\nc\n\n  d\"\n",
        "a: {b: c,d: {\"e\":f}, g, ? h : i}\n",
        "a: [b: c, ? d : e, ? f, \"g\":h, -, -i]\n",
        "a: &x\n- b\nc: *x\n",
        "a: &x k\n*x : v\n",
        "b: &b {k: 1}\nc: &c [*b, {l: 1}]\nx:\n  <<: *b\n  <<: *c\n",
        "x:\n  =: 1\n  !!str =: 1\n  \"<<\": 1\n",
        "a: |\n  \tb\n",
        "a: |2-   # why\tnot\n    b\n",
        "a: >+1\n  b\n\n# c\td\n",
        "a: 'it''s\t'\nb: \"\t\\\t\\x41\\u00e9\\U0001F600\\/\\\n \tc\"\n",
        "a: # b\n# c\n- d # e\n-\n  - f\n- - g\n  - h: i\n    j: k\n-\n",
        "a: !!binary |\n  SGk\n  =\nb: !!str 1\nc: !!seq [a]\nd: !!map {a: !!binary SGk=}\n",
        "a: b:c http://x?y#z %d @e `f ! & *\n",
        "a: -b\nc: ?d\ne: :f\n",
        "a: 2020-02-29\nb: 2020-1-1 1:02:03.4567890123 +1:30\nc: 2020-1-1\nd: 2020-13-45x\n",
        "a: 0x\nb: 0b\nc: 0_\nd: 1_\ne: 1:2:3\nf: ._\ng: 08\n",
        "a: b\u{2028}c: d\u{2029}\u{85}e: f\rg: h\r\n",
        "é: \u{feff}ü\u{1f600}\n",
        "? a\n: b\n? c\n",
        "a:\n- b\n\n \n- c\nd:\n  e\n\n  f\n",
        "a: a\n  b c\n",
        "a: ''\n'': b\n\"\": c\n",
        "a: !!binary \"S\\x47k=\"\n",
        "a: 2020-1-1\nb: 1234-56-7890\nc: 2020-1\nd: 2020-12-31T23:59:59. Z\n",
        // What libyaml does not read as it is.
        "a: |\n  \tb\nc:\n  d: >2\n     \te\n  \n    f\t!g,\n\ng: \"\n \th!,\"\ni: j!, !k,\nl: 'm!,n'\n",
        "a: |\n  \"\\",
        "a: [!!str b,!!str \"c,d\", &x !!str e]\nf: {!!str g: h,i: *x }\n",
        "a: &x !!str # b\n\n  c\nd: !!str &y\n  # e\n  'f'\ng: &z:h\n",
    ] {
        load(text).unwrap_or_else(|found| panic!("{text:?}: {found:?}"));
    }
    let key = "k".repeat(1024);
    load(&format!("{key}: v\n")).unwrap();
    let deep = "[".repeat(90) + &"]".repeat(90);
    load(&format!("a: {deep}\n")).unwrap();
}

#[test]
fn what_pyyaml_does_not_load_is_refused_with_its_line() {
    let key = format!("a: 1\n{}: v\n", "k".repeat(1025));
    for (text, line, why) in [
        ("packages:\n- jq\n\t\nruncmd: [a]\n", 3, "a tab here"),
        ("packages: [jq]\t# for the checks\n", 1, "a tab here"),
        ("packages:\n- jq\t\n", 2, "a tab here"),
        ("packages:\n-\tjq\n", 2, "a tab here"),
        ("a:\tb\n", 1, "a tab here"),
        ("a: b\tc\n", 1, "a tab here"),
        ("a: [b,\n\tc]\n", 2, "a tab here"),
        ("a: |\n  b\n\tc\n", 3, "a tab here"),
        ("a: |\t\n  b\n", 1, "the text of `|`"),
        ("a: |#c\n  b\n", 1, "the text of `|`"),
        ("a: |0\n  b\n", 1, "found an indentation indicator equal to 0"),
        ("a: |\n     \n  b\n", 3, "did not find expected key"),
        ("a: b\nc: \u{7}\n", 2, "the control character '\\u{7}'"),
        ("a: b\0", 1, "the control character '\\0'"),
        ("a: \u{ffff}", 1, "the control character"),
        ("a: b\nc: =\n", 2, "`=` as a value"),
        ("a: [<<]\n", 1, "`<<` as a value"),
        ("a: -0x_\n", 1, "-0x_ is a number without digits"),
        ("a: 0b__\n", 1, "0b__ is a number without digits"),
        ("[a]: b\n", 1, "a list or a mapping as a key"),
        ("a: &x [b]\n*x : c\n", 2, "a list or a mapping as a key"),
        ("a: {{b: c}: d}\n", 1, "a list or a mapping as a key"),
        ("<<: a\n", 1, "`<<` needs a mapping"),
        ("a: &x [{b: c}, d]\ne: {<<: *x}\n", 2, "`<<` needs a mapping"),
        ("a: *b\n", 1, "*b without &b"),
        ("a: &b c\nd: &b e\n", 2, "a second &b"),
        (
            "a: &b.c d\n",
            1,
            "did not find expected alphabetic or numeric character",
        ),
        (
            "a: &é d\n",
            1,
            "did not find expected alphabetic or numeric character",
        ),
        ("a: b\n---\nc: d\n", 2, "a second document starts here"),
        ("a: b\n---\n", 2, "a second document starts here"),
        ("--- a: b\n", 1, "mapping values are not allowed in this context"),
        ("a: b: c\n", 1, "mapping values are not allowed in this context"),
        ("a: - b\n", 1, "block sequence entries are not allowed"),
        (
            "a: [b\n",
            2,
            "did not find expected ',' or ']' while parsing a flow sequence",
        ),
        ("a: b]\nc: ]\n", 2, "did not find expected node content"),
        ("a: [b, {c: d]\n", 1, "did not find expected ',' or '}'"),
        ("a: {b\n: c}\n", 2, "did not find expected ',' or '}'"),
        ("a: [b?c]\n", 1, "a `?` between brackets"),
        ("a: [,]\n", 1, "did not find expected node content"),
        (": a\n", 1, "did not find expected key"),
        ("a\nb: c\n", 2, "mapping values are not allowed in this context"),
        (
            "a:\n  b: c\n d: e\n",
            3,
            "did not find expected key while parsing a block mapping",
        ),
        (
            "a: 'b\n",
            1,
            "found unexpected end of stream while scanning a quoted scalar",
        ),
        ("a: \"b\\", 1, "found unexpected end of stream"),
        ("a: \"b\n---\nc\"\n", 2, "found unexpected document indicator"),
        ("a: \"\\q\"\n", 1, "found unknown escape character"),
        ("a: \"\\x4\"\n", 1, "did not find expected hexdecimal number"),
        ("a: @b\n", 1, "found character that cannot start any token"),
        ("a: %b\n", 1, "found character that cannot start any token"),
        ("a: |\n  b\n \t\n", 3, "a tab here"),
        ("a: |\n    b\n  \tc\n", 3, "a tab here"),
        ("a: b\n \tc\n", 2, "a tab here"),
        ("a: [b,\n \tc]\n", 2, "a tab here"),
        ("a: \"b\n---\t\"\n", 2, "found unexpected document indicator"),
        ("a: &b!,c\n", 1, "did not find expected alphabetic"),
        ("a: [!!str]\n", 1, "did not find expected whitespace"),
        (
            key.as_str(),
            2,
            "could not find expected ':' while scanning a simple key",
        ),
    ] {
        let found = load(text).unwrap_err();
        let expected = format!("cloud-init cannot load this: {why}");
        assert!(found.message.starts_with(&expected), "{text:?}: {found:?}");
        assert_eq!(found.line, line, "{text:?}: {found:?}");
    }
}

/// All reasons to refuse what PyYAML may load.
#[test]
fn what_is_not_supported_is_refused_with_its_line() {
    let number = format!("a: {}\n", "1".repeat(301));
    let deep = format!("a: {}\n", "[".repeat(100));
    let long = format!("a: b\n{}: c\n", "é".repeat(600));
    let hexadecimal = format!("a: -0x{}\n", "f".repeat(301));
    // Aliases of aliases: two for each, and a chain.
    let chain = |width: usize, item: &dyn Fn(String) -> String| {
        let mut text = format!("a0: &a0 {{x: {}}}\n", "y".repeat(1000));
        for i in 1..200 {
            let aliases = vec![format!("*a{}", i - 1); width].join(", ");
            writeln!(text, "a{i}: &a{i} {}", item(aliases)).unwrap();
        }
        text
    };
    let merges = chain(2, &|aliases| format!("{{<<: [{aliases}]}}"));
    let lists = chain(2, &|aliases| format!("[{aliases}]"));
    let deep_merges = chain(1, &|alias| format!("{{<<: {alias}}}"));
    for (text, line, what) in [
        ("%YAML 1.1\n---\na: b\n", 1, "directives"),
        ("a: !!int 1\n", 1, "the tag !!int here"),
        (
            "a: !!python/object:x.Y {}\n",
            1,
            "the tag !!python/object:x.Y here",
        ),
        ("a: !reset b\n", 1, "the tag !reset here"),
        ("a: [!a, b]\n", 1, "the tag !a here"),
        ("a: [!", 1, "the tag ! here"),
        ("a: !!str [b]\n", 1, "the tag !!str here"),
        (
            "a: !<tag:yaml.org,2002:str> b\n",
            1,
            "the tag !<tag:yaml.org,2002:str>",
        ),
        ("a: !<!!str> b\n", 1, "the tag !!str here"),
        ("a: [&b !<c>,d]\n", 1, "the tag !<c> here"),
        ("a: !!binary |\n  SGk\n", 1, "!!binary that is not base64"),
        ("a: !!binary é\n", 1, "!!binary that is not base64"),
        ("a: 2020-13-45\n", 1, "2020-13-45, which looks like a date"),
        ("a: 2021-02-29T00:00:00Z\n", 1, "2021-02-29T00:00:00Z, which"),
        (
            "a: 2020-1-1\n  1:00:00 +24:00\n",
            1,
            "2020-1-1 1:00:00 +24:00, which",
        ),
        ("a: 2020-1-1 1:00:00.99-24\n", 1, "2020-1-1 1:00:00.99-24, which"),
        ("a: 2020-1-1 1:60:00. Z\n", 1, "2020-1-1 1:60:00. Z, which"),
        ("0000-01-01: a\n", 1, "0000-01-01, which"),
        ("%A b\n---\na: b\n", 1, "directives"),
        ("a: b\n%c: d\n", 2, "directives"),
        ("a: {b:, c: d}\n", 1, "`:` before a bracket"),
        ("a: [? : b]\n", 1, "`?` without a key in a list"),
        ("a: [? ]]\n", 1, "`?` without a key in a list"),
        ("a: \"\\U00110000\"\n", 1, "an escape of half"),
        ("a: b\r\n\u{feff}c: d\n", 2, "a byte order mark"),
        (long.as_str(), 2, "a key of more than 1024 bytes"),
        ("a: &b [*b]\n", 1, "*b inside of &b"),
        ("a: b\n&c <<: {d: e}\n", 2, "an anchor at the key `<<`"),
        ("a: \"\\ud83d\"\n", 1, "an escape of half of a surrogate pair"),
        (number.as_str(), 1, "a number of more than 300 characters"),
        (hexadecimal.as_str(), 1, "a number of more than 300 characters"),
        (deep.as_str(), 1, "more than 100 levels of nesting"),
        // 2 + 4 + … + 512 times 1004 bytes and more.
        (merges.as_str(), 10, "more than 1000000 bytes behind aliases"),
        (lists.as_str(), 10, "more than 1000000 bytes behind aliases"),
        (
            deep_merges.as_str(),
            99,
            "more than 100 levels of nesting, with aliases",
        ),
        ("a: {1: b}\n", 1, "a key that YAML takes for no text"),
        ("a:\n  b: c\n  yes: d\n", 3, "a key that YAML takes for no text"),
        ("a: {~: b}\n", 1, "a key that YAML takes for no text"),
        ("2020-01-01: a\n", 1, "a key that YAML takes for no text"),
        ("!!binary SGk=: a\n", 1, "a key that YAML takes for no text"),
        ("a: &x 1\n*x : b\n", 2, "a key that YAML takes for no text"),
    ] {
        let found = load(text).unwrap_err();
        assert!(
            found.message.starts_with(&format!("{NOT_SUPPORTED}{what}")),
            "{text:?}: {found:?}"
        );
        assert_eq!(found.line, line, "{text:?}: {found:?}");
    }
}

#[test]
fn keys_that_occur_twice_are_found() {
    let text = "a: 1\nb: {c: 1, 'd': 2, c: 3}\n<<: {}\n<<: {}\na: 2\n\"a\": 3\n";
    assert_eq!(load(text).unwrap().repeated, [(2, "c"), (5, "a"), (6, "a")]);
}

#[test]
fn what_is_text_is_known() {
    let kind = |text: &str| match load(&format!("a: {text}\n")).unwrap().root.unwrap().content {
        Content::Mapping(entries) => entries[0].1.kind(),
        other => panic!("{other:?}"),
    };
    for text in [
        "b",
        "y",
        "'1'",
        "!!str 1",
        "1.2.3.4",
        "00:16:3e:aa:00:01",
        "no one",
        "\"yes\"",
        "-b",
        "0x",
        "=x",
        "1a",
        "|\n  1",
        "2020-01-01x",
        "b\n  1",
        "info",
        "1,000",
    ] {
        // A text that looks like a number may be called something else.
        let expected = if text == "0x" { Kind::Other } else { Kind::Text };
        assert_eq!(kind(text), expected, "{text}");
    }
    for other in [
        "yes",
        "No",
        "TRUE",
        "off",
        "1",
        "-1",
        "+1_0",
        "0644",
        "0x1F",
        "-0b1",
        "1:20",
        "1.5",
        ".5",
        "1.5e+3",
        "1:2.5",
        ".inf",
        "-.INF",
        ".NaN",
        "2020-01-01",
        "2020-1-1\n  1:00:00",
        "2020-01-01T00:00:00Z",
        "!!binary SGk=",
    ] {
        assert_eq!(kind(other), Kind::Other, "{other}");
    }
    for null in ["", "~", "null", "NULL", "&b"] {
        assert_eq!(kind(null), Kind::Null, "{null}");
    }
    assert_eq!(kind("[{}, {b: c}]"), Kind::Mappings);
    assert_eq!(kind("[{}, b]"), Kind::Sequence);
}

#[test]
fn what_libyaml_reads_in_another_way_is_known() {
    assert_eq!(changed_line("a: |\n  b!\n\tc: d, e!"), None);
    assert_eq!(changed_line("a: |\n  b\n  \tc\n"), Some(3));
    assert_eq!(changed_line("a: b\nc: !d,e\n"), Some(2));
}

#[test]
fn no_text_panics() {
    use proptest::prelude::*;

    let piece = prop_oneof![
        "[ -~\n\t]{0,6}",
        "[-?:,{}\\[\\]#&*!|>'\"%@`\\\\ \n]{1,4}",
        any::<String>(),
        Just("---\n".to_owned()),
        Just("\\".to_owned()),
    ];
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(text in prop::collection::vec(piece, 0..12))| {
        drop(load(&text.concat()));
    });
}
