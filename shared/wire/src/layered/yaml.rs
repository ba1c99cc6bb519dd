//! YAML (and so JSON) as a tree in which every node has its line, for error messages.

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, Yaml, YamlData, YamlEmitter};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use serde_json::Value;

/// Maximum nesting depth of collections. Kubernetes' own objects stay below 30. Deeper nesting
/// would exhaust the stack, because the code is recursive.
pub const MAX_DEPTH: usize = 100;

/// A node with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Line of its first character, from 1. For a mapping's value that starts on the next line,
    /// that line.
    pub line: usize,
    /// Its content.
    pub value: NodeValue,
}

/// Content of a [`Node`].
#[derive(Debug, Clone, PartialEq)]
pub enum NodeValue {
    /// Null, a boolean, a number or a string.
    Scalar(Value),
    /// A sequence.
    Sequence(Vec<Node>),
    /// A mapping in its written order: key, the key's line, value. Keys are unique.
    Mapping(Vec<(String, usize, Node)>),
}

/// Error of parsing YAML: the text is not YAML, or has a value that JSON cannot represent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct YamlError {
    /// Line, from 1.
    pub line: usize,
    /// Description of the problem.
    pub message: String,
}

impl From<ScanError> for YamlError {
    fn from(error: ScanError) -> Self {
        Self {
            line: error.marker().line().max(1),
            message: error.info().to_owned(),
        }
    }
}

/// Parses every document of a text. Skips empty documents (nothing, or only comments, between two
/// `---`).
///
/// # Errors
/// The line and the reason: a syntax error, a duplicate key, nesting beyond [`MAX_DEPTH`], aliases
/// that expand to more than 100,000 nodes, or a collection as a key.
pub fn parse_yaml(text: &str) -> Result<Vec<Node>, YamlError> {
    check_depth(text)?;
    let documents = MarkedYaml::load_from_str(text)?;
    let nodes = documents.into_iter().map(node).collect::<Result<Vec<_>, _>>()?;
    Ok(nodes
        .into_iter()
        .filter(|node| node.value != NodeValue::Scalar(Value::Null))
        .collect())
}

/// Rejects nesting that is too deep before a tree is built: the tree is built, walked and dropped
/// by recursion.
fn check_depth(text: &str) -> Result<(), YamlError> {
    let mut depth = 0usize;
    for event in Parser::new_from_str(text) {
        let (event, span) = event?;
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                depth += 1;
                if depth > MAX_DEPTH {
                    let message = format!("nested more than {MAX_DEPTH} levels deep");
                    return Err(YamlError {
                        line: span.start.line(),
                        message,
                    });
                }
            }
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Whether a text has an alias (`*name`). With aliases, a short text can be a large document.
///
/// # Errors
/// The line and the reason: a syntax error.
pub fn has_alias(text: &str) -> Result<bool, YamlError> {
    for event in Parser::new_from_str(text) {
        if matches!(event?.0, Event::Alias(..)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn node(yaml: MarkedYaml<'_>) -> Result<Node, YamlError> {
    let line = yaml.span.start.line();
    let value = match yaml.data {
        YamlData::Value(scalar) => NodeValue::Scalar(scalar_value(scalar)),
        YamlData::Representation(text, ..) => NodeValue::Scalar(Value::String(text.into_owned())),
        YamlData::Tagged(_, inner) => return node(*inner),
        YamlData::Sequence(items) => {
            NodeValue::Sequence(items.into_iter().map(node).collect::<Result<_, _>>()?)
        }
        YamlData::Mapping(entries) => {
            let mut mapping = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                let key_line = key.span.start.line();
                let key = match key.data {
                    YamlData::Value(Scalar::String(text)) => text.into_owned(),
                    YamlData::Value(scalar) => scalar_value(scalar).to_string(),
                    YamlData::Representation(text, ..) => text.into_owned(),
                    _ => {
                        let message = "a key must be a plain word, not a list or a mapping".to_owned();
                        return Err(YamlError {
                            line: key_line,
                            message,
                        });
                    }
                };
                if mapping.iter().any(|(known, _, _)| *known == key) {
                    return Err(YamlError {
                        line: key_line,
                        message: format!("the key {key:?} occurs twice"),
                    });
                }
                mapping.push((key, key_line, node(value)?));
            }
            NodeValue::Mapping(mapping)
        }
        YamlData::Alias(_) | YamlData::BadValue => {
            return Err(YamlError {
                line,
                message: "a value that its tag does not allow".to_owned(),
            });
        }
    };
    Ok(Node { line, value })
}

fn scalar_value(scalar: Scalar<'_>) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Boolean(value) => value.into(),
        Scalar::Integer(value) => value.into(),
        Scalar::FloatingPoint(value) => value.into_inner().into(),
        Scalar::String(text) => text.into_owned().into(),
    }
}

impl Node {
    /// The value of a mapping's key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            NodeValue::Mapping(entries) => entries
                .iter()
                .find(|(name, _, _)| name == key)
                .map(|(_, _, node)| node),
            _ => None,
        }
    }

    /// The text of a string scalar.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The value without lines.
    pub fn to_json(&self) -> Value {
        match &self.value {
            NodeValue::Scalar(value) => value.clone(),
            NodeValue::Sequence(items) => items.iter().map(Node::to_json).collect(),
            NodeValue::Mapping(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, _, node)| (key.clone(), node.to_json()))
                    .collect(),
            ),
        }
    }
}

/// JSON as YAML text, with a line feed at its end.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    let emitted = YamlEmitter::new(&mut text).dump(&emittable(value));
    debug_assert!(emitted.is_ok(), "writing to a string cannot fail");
    let mut text = text
        .strip_prefix("---\n")
        .map_or_else(|| text.clone(), str::to_owned);
    text.push('\n');
    text
}

/// Whether a character must be escaped between double quotes (YAML 1.2.2, 5.1 `c-printable` and
/// 5.7), or is a line break for some parsers. The emitter writes some of these without escaping.
fn must_be_escaped(character: char) -> bool {
    let plain = matches!(character, '\t' | '\n');
    let noncharacter = u32::from(character) & 0xfffe == 0xfffe;
    (character.is_control() && !plain)
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}')
        || noncharacter
}

/// The escaped form of a text between double quotes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            _ if must_be_escaped(character) => {
                let code = u32::from(character);
                let escape = match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                };
                out.push_str(&escape);
            }
            _ => out.push(character),
        }
    }
    out
}

fn emittable(value: &Value) -> Yaml<'static> {
    match value {
        Value::Null => Yaml::Value(Scalar::Null),
        Value::Bool(value) => Yaml::Value(Scalar::Boolean(*value)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Yaml::Value(Scalar::Integer(whole)),
            (None, float) => Yaml::Value(Scalar::FloatingPoint(float.unwrap_or(f64::NAN).into())),
        },
        Value::String(text) if text.chars().any(must_be_escaped) => {
            Yaml::Representation(escaped(text).into(), ScalarStyle::DoubleQuoted, None)
        }
        Value::String(text) => Yaml::Value(Scalar::String(text.clone().into())),
        Value::Array(items) => Yaml::Sequence(items.iter().map(emittable).collect()),
        Value::Object(entries) => Yaml::Mapping(
            entries
                .iter()
                .map(|(key, value)| (emittable(&Value::String(key.clone())), emittable(value)))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_document_is_read_with_its_lines() {
        let text = "# a comment\na: 1\nb:\n  - x\n  - {c: true}\n---\n---\n# nothing\n---\nd: ~\n";
        let documents = parse_yaml(text).unwrap();
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[0].to_json(), json!({"a": 1, "b": ["x", {"c": true}]}));
        let NodeValue::Sequence(items) = &documents[0].get("b").unwrap().value else {
            panic!()
        };
        assert_eq!((items[0].line, items[1].line), (4, 5));
        assert_eq!(documents[1].to_json(), json!({"d": null}));
    }

    #[test]
    fn aliases_are_found_and_what_looks_like_one_is_none() {
        for (text, expected) in [
            ("a: &a [1]\nb: *a\n", true),
            ("a: &a {x: 1}\nb: {<<: *a}\n", true),
            ("a: 1\n---\nb: &b c\nd: [*b]\n", true),
            ("a: &a 1\nb: '*a'\n", false),
            ("a: x*a\n# *a\nb: |\n  *a\n", false),
            ("{\"a\": \"*a\"}", false),
            ("", false),
        ] {
            assert_eq!(has_alias(text), Ok(expected), "{text:?}");
        }
        assert_eq!(has_alias("a: 1\nb: [1, 2\n").unwrap_err().line, 3);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line) in [
            ("a: 1\nb: [1, 2\n", 3),
            ("a: 1\nb: 2\na: 3\n", 3),
            ("a: 1\n1: 2\n\"1\": 3\n", 3),
            ("a:\n\tb: 1\n", 2),
        ] {
            let error = parse_yaml(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
        }
    }

    #[test]
    fn hostile_texts_are_refused_without_harm() {
        for open in ["[", "{a: ", "- "] {
            parse_yaml(&open.repeat(50_000)).unwrap_err();
        }
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..12 {
            let before = format!("*a{}", i - 1);
            bomb.extend([
                "a",
                &i.to_string(),
                ": &a",
                &i.to_string(),
                " [",
                &vec![before; 10].join(","),
                "]\n",
            ]);
        }
        parse_yaml(&bomb).unwrap_err();
    }

    #[test]
    fn control_characters_read_back() {
        let every = (0..=0x9f_u8)
            .map(char::from)
            .chain("\u{2028}\u{2029}\u{feff}\u{ffff}\u{1fffe}\u{10ffff}".chars());
        for character in every {
            for text in [
                character.to_string(),
                format!("a{character}\"b\\\n- c{character}"),
            ] {
                let value = json!({ text.clone(): [text] });
                let written = to_yaml(&value);
                let back = parse_yaml(&written).unwrap_or_else(|error| panic!("{error}: {written:?}"));
                assert_eq!(back[0].to_json(), value, "{written:?}");
                assert!(!written.chars().any(must_be_escaped), "{written:?}");
            }
        }
    }

    fn json_values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\n\té]{0,12}".prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-z:# -]{1,6}", inner, 0..5)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_emitted_reads_back(value in json_values()) {
            let text = to_yaml(&value);
            let back = parse_yaml(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
            prop_assert_eq!(back.first().map_or(Value::Null, Node::to_json), value, "{}", text);
        }

        #[test]
        fn no_text_panics(text in "[ -~\n\t]{0,80}") {
            drop(parse_yaml(&text));
        }
    }
}
