//! Replacement templates: `$1` and `${name}` mean a group of the rule's pattern.
//!
//! Source of the rules: Go's `Regexp.Expand`, which Prometheus uses.

use regex::{Captures, Regex};

#[derive(Debug, Clone)]
pub(super) struct Template(Box<[Part]>);

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    Group(usize),
}

impl Template {
    /// Parses a template for the groups of `regex`. A reference to a group that the pattern lacks
    /// expands to nothing; a `$` that begins no reference is text.
    pub(super) fn new(template: &str, regex: &Regex) -> Self {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('$') {
            text.push_str(before);
            rest = after;
            if let Some(after) = rest.strip_prefix('$') {
                text.push('$');
                rest = after;
            } else if let Some((name, after)) = reference(rest) {
                rest = after;
                let group = group(name, regex);
                if let Some(group) = group.filter(|&group| group < regex.captures_len()) {
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(Part::Group(group));
                }
            } else {
                text.push('$');
            }
        }
        text.push_str(rest);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Self(parts.into())
    }

    /// Expands the template; none if the result has more than `limit` bytes.
    pub(super) fn expand(&self, captures: &Captures<'_>, limit: usize) -> Option<String> {
        let text = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Group(group) => captures.get(*group).map_or(0, |found| found.len()),
        };
        let length: usize = self.0.iter().map(text).sum();
        if length > limit {
            return None;
        }
        let mut out = String::with_capacity(length);
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Group(group) => {
                    out.push_str(captures.get(*group).map_or("", |found| found.as_str()));
                }
            }
        }
        Some(out)
    }
}

/// The name after a `$`, and the rest.
fn reference(text: &str) -> Option<(&str, &str)> {
    let (name, closing) = match text.strip_prefix('{') {
        Some(inside) => (inside, "}"),
        None => (text, ""),
    };
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (name, rest) = name.split_at(end.unwrap_or(name.len()));
    let rest = rest.strip_prefix(closing)?;
    (!name.is_empty()).then_some((name, rest))
}

/// The group with this number or name. A number has no leading zero.
fn group(name: &str, regex: &Regex) -> Option<usize> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && (name == "0" || !name.starts_with('0')) {
        return name.parse().ok();
    }
    regex.capture_names().position(|known| known == Some(name))
}

/// Whether a target label or a replacement of `labelmap` can expand to a name: letters, digits,
/// underscores and references, without a digit at the beginning.
pub(super) fn is_name_template(text: &str) -> bool {
    let mut rest = text;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    while let Some(c) = rest.chars().next() {
        rest = if c == '$' {
            match reference(&rest[1..]) {
                Some((name, after)) if name.chars().all(is_word) => after,
                _ => return false,
            }
        } else if is_word(c) {
            &rest[c.len_utf8()..]
        } else {
            return false;
        };
    }
    text.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(template: &str) -> String {
        let regex = Regex::new("^(a+)(?P<name>b+)(c)?$").unwrap();
        let captures = regex.captures("aabb").unwrap();
        Template::new(template, &regex).expand(&captures, 100).unwrap()
    }

    #[test]
    fn references_expand_as_in_go() {
        for (template, expected) in [
            ("$1-$2", "aa-bb"),
            ("${1}x$1x", "aax"),
            ("${name}${0}", "bbaabb"),
            ("$name", "bb"),
            ("[$3][$4][${none}][$01]", "[][][][]"),
            ("$$1", "$1"),
            ("$", "$"),
            ("a$-b${", "a$-b${"),
            ("${}${1-}", "${}${1-}"),
        ] {
            assert_eq!(expand(template), expected, "{template:?}");
        }
    }

    #[test]
    fn an_expansion_over_the_limit_is_rejected() {
        let regex = Regex::new("^(.*)$").unwrap();
        let captures = regex.captures("abc").unwrap();
        assert!(Template::new("$1$1", &regex).expand(&captures, 5).is_none());
    }

    #[test]
    fn names_with_references() {
        for (text, valid) in [
            ("-label", false),
            ("label", true),
            ("label${1}", true),
            ("${1}label", true),
            ("${", false),
            ("$", false),
            ("${}", false),
            ("foo${", false),
            ("$1", true),
            ("asd$2asd", true),
            ("-foo${1}bar-", false),
            ("_${1}_", true),
            ("foo${bar}foo", true),
            ("0${1}", false),
            ("", false),
        ] {
            assert_eq!(is_name_template(text), valid, "{text:?}");
        }
    }
}
