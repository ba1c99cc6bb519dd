//! Rules for the source text in which PyYAML's `scanner.py` and `reader.py` differ from libyaml.

use libyaml_safer::{Error, Mark};

use super::refusal::{DIRECTIVES, Result, cannot_load, not_supported};

/// Maximum length of a key. PyYAML counts characters, and libyaml-safer bytes.
const MAX_KEY: usize = 1024;

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The line at an offset, from 1.
fn line_at(text: &str, at: usize) -> usize {
    text[..at].replace("\r\n", "\n").matches(is_break).count() + 1
}

/// The line of a mark, from 1.
pub(super) fn line(mark: Mark) -> usize {
    usize::try_from(mark.line).map_or(1, |line| line + 1)
}

/// The offset of a mark in the text that [`for_libyaml`] changed.
pub(super) fn offset(text: &str, mark: Mark) -> usize {
    usize::try_from(mark.index).map_or(text.len(), |at| at.min(text.len()))
}

/// Refuses control characters, and marks with which libyaml and PyYAML count columns differently.
pub(super) fn check_characters(text: &str) -> Result<()> {
    let printable = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
    if let Some((at, odd)) = text.char_indices().find(|(_, c)| !printable(*c)) {
        return cannot_load(line_at(text, at), format_args!("the control character {odd:?}"));
    }
    let mut marks = text.match_indices('\u{feff}').map(|(at, _)| at);
    match marks.find(|at| text[..*at].is_empty() || text[..*at].ends_with(is_break)) {
        Some(at) => not_supported(line_at(text, at), "a byte order mark here; remove it"),
        None => Ok(()),
    }
}

/// The text with equal offsets, but without what stops libyaml where PyYAML goes on, or goes on in
/// another way. What is replaced has no meaning in quotes and blocks; elsewhere, [`check_plain`]
/// and [`refuse`] find it.
pub(super) fn for_libyaml(text: &str) -> String {
    let mut changed = String::with_capacity(text.len() + 1);
    for line in text.split_inclusive(is_break) {
        let (spaces, mut rest) = line.split_at(line.len() - line.trim_start_matches(' ').len());
        changed.push_str(spaces);
        // libyaml refuses a tab that begins the text of `|` or `>`.
        if let Some(after) = rest.strip_prefix('\t').filter(|_| !spaces.is_empty()) {
            changed.push('@');
            rest = after;
        }
        // libyaml-safer panics at a tag with a comma behind it.
        for word in rest.split_inclusive([' ', '\t']) {
            match word.split_once('!') {
                Some((_, after)) if after.contains(',') => changed.push_str(&word.replace('!', "$")),
                _ => changed.push_str(word),
            }
        }
    }
    // It also panics if the text of `|` or `>` has no last line break.
    if !text.ends_with('\n') {
        changed.push('\n');
    }
    changed
}

/// The line of the first character that [`for_libyaml`] replaces. Without one, the values of
/// scalars are exact, except for a line feed at the end of the text.
pub(crate) fn changed_line(text: &str) -> Option<usize> {
    let changed = for_libyaml(text);
    let mut bytes = text.bytes().zip(changed.bytes());
    let at = bytes.position(|(before, after)| before != after)?;
    Some(line_at(text, at))
}

/// The text of a scalar behind one property, a tag or an anchor.
pub(super) fn behind_property(source: &str) -> &str {
    let mut rest = match source.strip_prefix('&') {
        Some(name) => name.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_'),
        None => source.trim_start_matches(|c| !matches!(c, ' ' | '\t') && !is_break(c)),
    };
    loop {
        rest = rest.trim_start_matches(|c| matches!(c, ' ' | '\t') || is_break(c));
        if !rest.starts_with('#') {
            return rest;
        }
        rest = rest.trim_start_matches(|c| !is_break(c));
    }
}

/// Checks what is between two scalars, which is at these offsets.
pub(super) fn check_between(text: &str, start: usize, end: usize) -> Result<()> {
    let mut at = start;
    for part in text[start..end].split_inclusive(is_break) {
        let code = part.split('#').next().unwrap_or_default();
        if let Some(tab) = code.find('\t') {
            return tab_at(text, at + tab);
        }
        at += part.len();
    }
    Ok(())
}

/// Checks a scalar without quotes, which begins at this offset.
pub(super) fn check_plain(text: &str, at: usize, source: &str, in_flow: bool) -> Result<()> {
    if let Some(tab) = source.find('\t') {
        return tab_at(text, at + tab);
    }
    if source.starts_with('!') {
        let tag = source.split(' ').next().unwrap_or_default();
        return not_supported(line_at(text, at), format_args!("the tag {tag} here; remove it"));
    }
    if in_flow && source.contains('?') {
        return cannot_load(line_at(text, at), "a `?` between brackets; quote the text");
    }
    Ok(())
}

/// Checks the first line of a text of `|` or `>`.
pub(super) fn check_header(text: &str, at: usize, source: &str) -> Result<()> {
    let header = source.split(is_break).next().unwrap_or_default();
    let rest = header.trim_start_matches(|c: char| "|>+-".contains(c) || c.is_ascii_digit());
    let comment = rest.trim_start_matches(' ');
    if comment.is_empty() || comment.starts_with('#') && comment.len() < rest.len() {
        return Ok(());
    }
    let why = "the text of `|` or `>` begins on the next line; a comment follows a space, not a tab";
    cannot_load(line_at(text, at), why)
}

fn tab_at<T>(text: &str, at: usize) -> Result<T> {
    cannot_load(line_at(text, at), "a tab here; use spaces")
}

/// Translates an error of libyaml.
pub(super) fn refuse<T>(text: &str, error: &Error) -> Result<T> {
    let problem = error.problem();
    // Of a quote or a key, the beginning tells more than the end.
    let mark = match problem {
        "could not find expected ':'" | "found unexpected end of stream" => error.context_mark(),
        _ => error.problem_mark(),
    };
    let at = mark.map_or(text.len(), |mark| offset(text, mark));
    let line = line_at(text, at);
    let before = text[..at].rsplit(is_break).next().unwrap_or_default();
    let behind = text[at..].split(is_break).next().unwrap_or_default();
    if behind.starts_with('\t') {
        return tab_at(text, at);
    }
    if before.starts_with('%') || before.is_empty() && behind.starts_with('%') {
        return not_supported(line, DIRECTIVES);
    }
    if problem == "found invalid Unicode character escape code" {
        return not_supported(line, "an escape of half of a surrogate pair, or of no character");
    }
    if problem == "found unexpected ':'" {
        return not_supported(line, "`:` before a bracket, `,` or `?`; add a space behind it");
    }
    if before.len() + behind.len() > MAX_KEY && !(before.is_ascii() && behind.is_ascii()) {
        let what = format_args!("a key of more than {MAX_KEY} bytes: {problem}");
        return not_supported(line, what);
    }
    let context = error.context().map(|context| format!(" {context}"));
    cannot_load(line, problem.to_owned() + &context.unwrap_or_default())
}
