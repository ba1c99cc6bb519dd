//! Label selectors as text, in the syntax of `kubectl -l`:
//! `app=web,tier!=db,zone in (a,b),rack notin (c),gpu,!spot`.

use std::fmt;

use crate::{
    facts::{Operator, Requirement, Selector},
    label_map::Labels,
};

/// Maximum requirements of a selector.
const MAX_REQUIREMENTS: usize = 32;
/// Maximum bytes of a selector.
const MAX_SELECTOR_BYTES: usize = 4096;

/// A selector that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSelector(String);

impl fmt::Display for InvalidSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for InvalidSelector {}

/// Reads a selector.
///
/// # Errors
/// The requirement that is wrong, and an example.
pub fn parse_selector(text: &str) -> Result<Selector, InvalidSelector> {
    let wrong = |part: &str| {
        InvalidSelector(format!(
            "{part:?} is not a requirement; examples: app=web, tier!=db, zone in (a,b), gpu, !spot"
        ))
    };
    if text.len() > MAX_SELECTOR_BYTES {
        return Err(InvalidSelector(format!(
            "the selector has {} bytes, at most {MAX_SELECTOR_BYTES}",
            text.len()
        )));
    }
    let parts = split(text);
    if parts.len() > MAX_REQUIREMENTS {
        return Err(InvalidSelector(format!(
            "the selector has {} requirements, at most {MAX_REQUIREMENTS}",
            parts.len()
        )));
    }
    let mut selector = Selector {
        match_labels: Labels::new(),
        match_expressions: Vec::new(),
    };
    for part in parts {
        let requirement = requirement(part.trim()).ok_or_else(|| wrong(part.trim()))?;
        selector.match_expressions.push(requirement);
    }
    Ok(selector)
}

/// The requirements, split at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn requirement(part: &str) -> Option<Requirement> {
    let make = |key: &str, operator, values: Vec<&str>| {
        let key = key.trim();
        let is_word = |text: &str, more: &[u8]| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) || more.contains(&byte))
        };
        let is_valid =
            !key.is_empty() && is_word(key, b"/") && values.iter().all(|value| is_word(value.trim(), b""));
        is_valid.then(|| Requirement {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|value| value.trim().to_owned()).collect(),
        })
    };
    if let Some(key) = part.strip_prefix('!') {
        return make(key, Operator::DoesNotExist, Vec::new());
    }
    if let Some((key, value)) = part.split_once("!=") {
        return make(key, Operator::NotIn, vec![value]);
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return make(key, Operator::In, vec![value]);
    }
    if let Some((head, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let (key, word) = head.trim().split_once(char::is_whitespace)?;
        let operator = match word.trim() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            _ => return None,
        };
        return make(key, operator, values.split(',').collect());
    }
    make(part, Operator::Exists, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_syntax_of_kubectl_is_read() {
        let labels: Labels = [("app", "web"), ("zone", "a"), ("example.com/gpu", "")]
            .into_iter()
            .collect();
        for (text, matches) in [
            ("app=web", true),
            ("app==web", true),
            ("app = db", false),
            ("app!=db", true),
            ("other!=db", true),
            ("zone in (a, b)", true),
            ("zone notin (a,b)", false),
            ("example.com/gpu", true),
            ("!example.com/gpu", false),
            ("!spot,app=web,zone in (a)", true),
            ("app=web,zone=b", false),
        ] {
            let selector = parse_selector(text).unwrap();
            assert_eq!(selector.matches(&labels), matches, "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_named() {
        for text in [
            "",
            "a=b,",
            "=b",
            "a b",
            "a in b",
            "a within (b)",
            "a=b c",
            "a in (b",
            "\u{1b}=x",
        ] {
            let error = parse_selector(text).unwrap_err();
            assert!(
                error.to_string().contains("is not a requirement"),
                "{text}: {error}"
            );
        }
        assert!(
            parse_selector(&"a,".repeat(3000))
                .unwrap_err()
                .to_string()
                .contains("bytes")
        );
        assert!(
            parse_selector(&"a,".repeat(100))
                .unwrap_err()
                .to_string()
                .contains("requirements")
        );
    }
}
