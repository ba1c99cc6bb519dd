//! What PyYAML makes of scalars, and which it takes for a number, a date or base64 and then cannot
//! convert.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::refusal::{Result, cannot_load, not_supported};

/// Maximum characters of a number. Python writes 4300 decimal digits; a number to the base 60 has
/// more than its text, and one to the base 16 too.
const MAX_NUMBER: usize = 300;

/// What PyYAML makes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A string.
    Text,
    Null,
    /// A boolean, a number, a date or bytes, or a text that looks like one.
    Other,
    Mapping,
    /// A sequence of mappings, which can be merged as a mapping can.
    Mappings,
    /// Another sequence.
    Sequence,
}

/// What PyYAML makes of a plain scalar without a tag, which is folded to one line.
pub(super) fn kind(source: &str) -> Kind {
    let text = source.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        text if is_text(text) => Kind::Text,
        _ => Kind::Other,
    }
}

/// Whether PyYAML takes a plain scalar for text, whatever its case. That it does so with a few
/// texts that look like numbers (`1-2`, `1:99`, `1e5`) is ignored.
fn is_text(text: &str) -> bool {
    let unsigned = unsigned(text);
    let has_only = |allowed: &[u8]| unsigned.bytes().all(|b| allowed.contains(&b));
    let number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && has_only(b"0123456789_:.eE+-")
        && unsigned.matches('.').count() < 2;
    let based =
        (unsigned.starts_with("0x") || unsigned.starts_with("0b")) && has_only(b"0123456789abcdefABCDEFx_");
    let is = |text: &str, words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    let word = is(text, &["null", "yes", "no", "true", "false", "on", "off"]);
    !(number || based || word || is(unsigned, &[".inf", ".nan"]) || like_a_date(text))
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

/// Checks the text of a plain scalar without a tag.
pub(super) fn check_plain(text: &str, line: usize) -> Result<()> {
    let unsigned = unsigned(text);
    let digits = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0b"));
    if digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b == b'_')) {
        return cannot_load(line, format_args!("{text} is a number without digits; quote it"));
    }
    if text.len() > MAX_NUMBER && !is_text(text) {
        let what = format_args!("a number of more than {MAX_NUMBER} characters; quote it if it is text");
        return not_supported(line, what);
    }
    if like_a_date(text) && !exists(text) {
        let what = format_args!("{text}, which looks like a date and is none; quote it");
        return not_supported(line, what);
    }
    Ok(())
}

/// Checks a scalar with the tag `!!binary`.
pub(super) fn check_binary(text: &str, line: usize) -> Result<()> {
    let letters: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    match STANDARD.decode(letters) {
        Ok(_) => Ok(()),
        Err(_) => not_supported(line, "!!binary that is not base64 with its padding"),
    }
}

/// Whether PyYAML may take this for a date, with or without a time. It takes no other text for one.
fn like_a_date(text: &str) -> bool {
    text.as_bytes().get(4) == Some(&b'-')
        && (text.len() == "2020-01-01".len() || text.contains(':'))
        && text.bytes().all(|b| b"0123456789-:.+TtZ \t".contains(&b))
}

/// Whether what looks like a date exists.
fn exists(text: &str) -> bool {
    let digit = |c: char| c.is_ascii_digit();
    let (clock, zone) = text.split_once('.').unwrap_or((text, ""));
    let zone = zone.trim_start_matches(digit);
    let numbers = clock.split(|c| !digit(c)).chain(zone.split(|c| !digit(c)));
    let numbers = numbers.filter(|digits| !digits.is_empty());
    let numbers: Vec<u32> = numbers.map(|digits| digits.parse().unwrap_or(u32::MAX)).collect();
    let [year, month, day, ref time @ ..] = numbers[..] else {
        return true;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        _ => 31,
    };
    // Hour, minute and second, and of the zone hour and minute.
    let time = time
        .iter()
        .zip([24, 60, 60, 24, 60])
        .all(|(number, limit)| *number < limit);
    time && year > 0 && (1..=12).contains(&month) && (1..=days).contains(&day)
}
