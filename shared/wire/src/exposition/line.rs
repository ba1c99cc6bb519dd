//! The parser: parses one line at a time and borrows from the text, so a page of any size needs
//! constant memory.

use std::borrow::Cow;

use super::{MetricType, is_label_name, is_metric_name};

/// One line of a page.
#[derive(Debug)]
pub enum Line<'text> {
    /// An empty line, or a comment without meaning in the format.
    Blank,
    /// `# HELP name text`, unescaped.
    Help(&'text str, Cow<'text, str>),
    /// `# TYPE name type`.
    Type(&'text str, MetricType),
    /// A sample.
    Sample(Sample<'text>),
    /// OpenMetrics' `# EOF`.
    Eof,
}

/// One sample.
#[derive(Debug, Clone)]
pub struct Sample<'text> {
    /// Name and labels, as they are on the page.
    pub series: &'text str,
    /// Name of the metric.
    pub name: &'text str,
    /// Labels. They were validated when the line was parsed.
    pub labels: Labels<'text>,
    /// The value.
    pub value: f64,
    /// Time stamp in milliseconds since 1970, if the page has one.
    pub timestamp_ms: Option<i64>,
}

/// Iterates over `(name, unescaped value)`.
#[derive(Debug, Clone)]
pub struct Labels<'text> {
    rest: &'text str,
}

/// Error of parsing a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The metric's name violates the rule for names.
    #[error("bad metric name {0:?}")]
    Name(String),
    /// The labels are not `{name="value",…}`.
    #[error("bad labels at {0:?}")]
    Labels(String),
    /// The value is not a number.
    #[error("bad value {0:?}")]
    Value(String),
    /// The time stamp is not a whole number of milliseconds.
    #[error("bad time stamp {0:?}")]
    Timestamp(String),
    /// A `# TYPE` line has an unknown type.
    #[error("bad type {0:?}")]
    Type(String),
}

/// Whether a character separates the parts of a line. A predicate: a search for an array of
/// characters is several times slower.
const fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// As [`is_blank`], at the ends of a line.
const fn is_line_blank(c: char) -> bool {
    is_blank(c) || c == '\r'
}

/// As [`is_blank`], between labels.
const fn is_blank_or_comma(c: char) -> bool {
    is_blank(c) || c == ','
}

/// The beginning of an invalid text, for an error.
fn quote(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Parses one line, without its line feed.
///
/// # Errors
/// The first error in the line.
pub fn parse_line(line: &str) -> Result<Line<'_>, LineError> {
    let line = line.trim_matches(is_line_blank);
    match line.strip_prefix('#') {
        None if line.is_empty() => Ok(Line::Blank),
        None => sample(line).map(Line::Sample),
        Some(comment) => meta(comment.trim_start_matches(is_blank)),
    }
}

fn meta(comment: &str) -> Result<Line<'_>, LineError> {
    let split = |text: &'_ str| -> (usize, usize) {
        let end = text.find(is_blank).unwrap_or(text.len());
        (end, text.len() - text[end..].trim_start_matches(is_blank).len())
    };
    if comment == "EOF" {
        return Ok(Line::Eof);
    }
    let (end, next) = split(comment);
    let (word, rest) = (&comment[..end], &comment[next..]);
    if word != "HELP" && word != "TYPE" {
        return Ok(Line::Blank);
    }
    let (end, next) = split(rest);
    let (name, text) = (&rest[..end], &rest[next..]);
    if !is_metric_name(name) {
        return Err(LineError::Name(quote(name)));
    }
    if word == "HELP" {
        return Ok(Line::Help(name, unescape(text)));
    }
    MetricType::parse(text)
        .map(|kind| Line::Type(name, kind))
        .ok_or_else(|| LineError::Type(quote(text)))
}

fn sample(line: &str) -> Result<Sample<'_>, LineError> {
    let end = line.find(|c: char| c == '{' || is_blank(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if !is_metric_name(name) {
        return Err(LineError::Name(quote(name)));
    }
    let mut series = name;
    let rest = rest.trim_start_matches(is_blank);
    let (labels, rest) = match rest.strip_prefix('{') {
        None => (Labels { rest: "" }, rest),
        Some(inside) => {
            let mut scan = Labels { rest: inside };
            let end = loop {
                if let Some(after) = scan.closed() {
                    break inside.len() - after.len() - 1;
                }
                scan.advance()?;
            };
            let after = &inside[end + 1..];
            series = &line[..line.len() - after.len()];
            (Labels { rest: &inside[..end] }, after)
        }
    };
    let (value, timestamp_ms) = value_and_time(rest)?;
    Ok(Sample {
        series,
        name,
        labels,
        value,
        timestamp_ms,
    })
}

/// Parses a sample whose name and labels are known: `line` begins with a text of `series_len`
/// bytes that was the [`Sample::series`] of another line, whose [`Sample::name`] had `name_len`
/// bytes. None if the line has to be parsed by [`parse_line`]: the text goes on in another way, or
/// the line is malformed.
pub fn parse_known(line: &str, series_len: usize, name_len: usize) -> Option<Sample<'_>> {
    let (series, rest) = line.split_at_checked(series_len)?;
    let (name, after) = series.split_at_checked(name_len)?;
    let inside = after.trim_start_matches(is_blank);
    let labels = if inside.is_empty() {
        // Otherwise the name is a longer one, or labels follow.
        if !rest.starts_with(is_blank) {
            return None;
        }
        inside
    } else {
        inside.strip_prefix('{')?.strip_suffix('}')?
    };
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let (value, timestamp_ms) = match parse_value(rest) {
        Some(value) => (value, None),
        None => value_and_time(rest.trim_end_matches(is_line_blank)).ok()?,
    };
    Some(Sample {
        series,
        name,
        labels: Labels { rest: labels },
        value,
        timestamp_ms,
    })
}

fn value_and_time(rest: &str) -> Result<(f64, Option<i64>), LineError> {
    let mut words = rest.split(is_blank).filter(|word| !word.is_empty());
    let text = words.next().unwrap_or_default();
    let value = parse_value(text).ok_or_else(|| LineError::Value(quote(text)))?;
    let timestamp_ms = match words.next() {
        // OpenMetrics appends an exemplar after a `#`.
        None | Some("#") => None,
        Some(text) => Some(text.parse().map_err(|_| LineError::Timestamp(quote(text)))?),
    };
    Ok((value, timestamp_ms))
}

/// Parses a value. Go's `ParseFloat`, which the format refers to, accepts `NaN`, `Inf`, `+Inf` and
/// `-Inf` in any case. So does Rust's parser.
fn parse_value(text: &str) -> Option<f64> {
    text.parse().ok()
}

impl<'text> Labels<'text> {
    /// The text after the closing brace, if the brace is next.
    fn closed(&self) -> Option<&'text str> {
        self.rest.trim_start_matches(is_blank_or_comma).strip_prefix('}')
    }

    fn advance(&mut self) -> Result<(&'text str, Cow<'text, str>), LineError> {
        let bad = |at: &str| LineError::Labels(quote(at));
        let text = self.rest.trim_start_matches(is_blank_or_comma);
        let (name, after) = text.split_once('=').ok_or_else(|| bad(text))?;
        let name = name.trim_end_matches(is_blank);
        if !is_label_name(name) {
            return Err(bad(text));
        }
        let quoted = after
            .trim_start_matches(is_blank)
            .strip_prefix('"')
            .ok_or_else(|| bad(after))?;
        let mut escaped = false;
        for (at, byte) in quoted.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    self.rest = &quoted[at + 1..];
                    return Ok((name, unescape(&quoted[..at])));
                }
                _ => {}
            }
        }
        Err(bad(text))
    }
}

impl<'text> Iterator for Labels<'text> {
    type Item = Result<(&'text str, Cow<'text, str>), LineError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.trim_start_matches(is_blank_or_comma).is_empty() {
            return None;
        }
        let item = self.advance();
        if item.is_err() {
            self.rest = "";
        }
        Some(item)
    }
}

fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, false) => plain.push(c),
            (_, true) => match chars.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            },
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_that_prometheus_accepts() {
        let ok = |line| match parse_line(line) {
            Ok(Line::Sample(s)) => (s.name.to_owned(), s.labels.count(), s.value, s.timestamp_ms),
            other => panic!("{line:?}: {other:?}"),
        };
        assert_eq!(ok("a 1"), ("a".into(), 0, 1.0, None));
        assert_eq!(
            ok("a{} 1 1395066363000"),
            ("a".into(), 0, 1.0, Some(1_395_066_363_000))
        );
        assert_eq!(
            ok("a { b = \"c}\" , d=\"\", } 1e3"),
            ("a".into(), 2, 1000.0, None)
        );
        assert_eq!(ok("a{b=\"}\"} +Inf # {} 1"), ("a".into(), 1, f64::INFINITY, None));
        assert!(matches!(parse_line("# EOF"), Ok(Line::Eof)));
        assert!(matches!(parse_line("# anything"), Ok(Line::Blank)));
        assert!(matches!(
            parse_line("# TYPE a counter"),
            Ok(Line::Type("a", MetricType::Counter))
        ));
        assert!(matches!(parse_line("# HELP a x\\ny"), Ok(Line::Help("a", text)) if text == "x\ny"));
    }

    #[test]
    fn lines_that_it_refuses() {
        for line in [
            "1a 1",
            "a",
            "a b",
            "a{b=\"c\" 1",
            "a{b=c} 1",
            "a{1=\"c\"} 1",
            "a{b=\"c\\\"} 1",
            "a 1 x",
            "# TYPE a x",
            "é 1",
        ] {
            assert!(parse_line(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn the_series_is_the_text_before_the_value() {
        for (line, expected) in [
            ("a 1", "a"),
            (" a{b=\"c d\"} 1 2", "a{b=\"c d\"}"),
            ("a { b=\"}\" }1", "a { b=\"}\" }"),
            ("a{}\t1", "a{}"),
        ] {
            let Ok(Line::Sample(sample)) = parse_line(line) else {
                panic!("{line:?}");
            };
            assert_eq!(sample.series, expected);
        }
    }

    proptest! {
        #[test]
        fn a_known_series_is_parsed_as_by_itself(
            series in "[ab]{1,2}([ \t]?\\{[ab=\",\\\\ }]{0,8}\\})?",
            rest in "[ \t{}ab0-9.#\r]{0,8}",
        ) {
            let other = format!("{series} 1");
            let Ok(Line::Sample(known)) = parse_line(&other) else {
                return Ok(());
            };
            let line = format!("{}{rest}", known.series);
            if let Some(sample) = parse_known(&line, known.series.len(), known.name.len()) {
                let Ok(Line::Sample(expected)) = parse_line(&line) else {
                    panic!("{line:?} is malformed");
                };
                prop_assert_eq!(format!("{:?}", sample), format!("{:?}", expected));
            }
        }

        #[test]
        fn no_line_panics(line in "[a-z{}\"=,\\\\# \t0-9é]{0,60}") {
            if let Ok(Line::Sample(sample)) = parse_line(&line) {
                for label in sample.labels {
                    prop_assert!(label.is_ok());
                }
            }
        }
    }
}
