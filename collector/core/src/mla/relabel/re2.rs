//! Translates a pattern of Go's `regexp` (RE2), in which relabelling rules are written, into one of
//! the crate `regex`.
//!
//! Source of the rules: Go's `regexp/syntax`. The dialects differ as follows:
//! - `\d`, `\w`, `\s` and `\b` are ASCII in RE2 and Unicode in the crate.
//! - In a class, `[`, `&&`, `--` and `~~` are literals in RE2 and operators in the crate.
//! - A `{` that begins no repetition is a literal in RE2.
//! - RE2 has `\Q…\E` and octal escapes; the crate has the flags `u`, `x` and `R`, `\<` and `\b{…}`.

use std::{fmt::Write as _, iter::Peekable, str::Chars};

use regex::{Regex, RegexBuilder};

/// Maximum length of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 4096;
/// Maximum memory of a compiled pattern, in bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// Maximum memory of the cache of one pattern's lazy automaton, in bytes.
const MAX_CACHE_BYTES: usize = 1 << 20;
/// Maximum depth of nested groups.
const MAX_NESTING: u32 = 50;
/// Maximum count of a repetition, as in RE2.
const MAX_REPETITIONS: u32 = 1000;

/// Compiles an anchored pattern in which `.` matches a line feed, as Prometheus 3 does.
///
/// # Errors
/// What in the pattern is invalid, or which limit it exceeds.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!("the regex has more than {MAX_PATTERN_BYTES} bytes"));
    }
    let translated = translate(pattern).map_err(|why| format!("invalid regex {pattern:?}: {why}"))?;
    RegexBuilder::new(&format!("^(?s:{translated})$"))
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_CACHE_BYTES)
        .nest_limit(MAX_NESTING)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => {
                format!("the regex {pattern:?} needs more than {limit} bytes of memory")
            }
            other => {
                let text = other.to_string();
                let reason = text.lines().last().unwrap_or_default();
                format!(
                    "invalid regex {pattern:?}: {}",
                    reason.trim_start_matches("error: ")
                )
            }
        })
}

fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => escape(&mut rest, &mut out)?,
            '[' => class(&mut rest, &mut out)?,
            '{' => repetition(&mut rest, &mut out)?,
            '(' => group(&mut rest, &mut out)?,
            _ => out.push(c),
        }
    }
    Ok(out)
}

type Rest<'a> = Peekable<Chars<'a>>;

/// Translates what follows a backslash outside a class.
fn escape(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    let Some(c) = rest.next() else {
        return Err("trailing backslash at end of expression".to_owned());
    };
    if let Some(ascii) = perl_class(c) {
        write!(out, "[{ascii}]").ok();
        return Ok(());
    }
    match c {
        'b' | 'B' => write!(out, "(?-u:\\{c})").ok(),
        'A' | 'z' => write!(out, "\\{c}").ok(),
        'p' | 'P' => return property(c, rest, out),
        'Q' => {
            quoted(rest, out);
            return Ok(());
        }
        _ => {
            literal(escaped_char(c, rest)?, out);
            return Ok(());
        }
    };
    Ok(())
}

/// The ASCII characters of `\d` and its like, inside brackets.
fn perl_class(c: char) -> Option<&'static str> {
    Some(match c {
        'd' => "0-9",
        'D' => "^0-9",
        's' => "\\t\\n\\x0C\\r ",
        'S' => "^\\t\\n\\x0C\\r ",
        'w' => "0-9A-Za-z_",
        'W' => "^0-9A-Za-z_",
        _ => return None,
    })
}

/// `\pL`, `\p{Greek}`, `\p{^Greek}`.
fn property(kind: char, rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    let bad = || "invalid character class range: \\p".to_owned();
    let first = rest.next().ok_or_else(bad)?;
    let name: String = if first == '{' {
        let name: String = rest.by_ref().take_while(|&c| c != '}').collect();
        name
    } else {
        first.to_string()
    };
    let (kind, name) = match (name.strip_prefix('^'), kind) {
        (None, _) => (kind, name.as_str()),
        (Some(name), 'p') => ('P', name),
        (Some(name), _) => ('p', name),
    };
    let known = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    if !known {
        return Err(bad());
    }
    match name {
        "Any" => write!(out, "\\{kind}{{any}}").ok(),
        _ => write!(out, "\\{kind}{{{name}}}").ok(),
    };
    Ok(())
}

/// `\Q…\E`; without `\E` up to the end.
fn quoted(rest: &mut Rest<'_>, out: &mut String) {
    while let Some(c) = rest.next() {
        if c == '\\' && rest.peek() == Some(&'E') {
            rest.next();
            return;
        }
        literal(c, out);
    }
}

/// The character that an escape such as `\n`, `\x41` or `\.` means; `c` follows the backslash.
fn escaped_char(c: char, rest: &mut Rest<'_>) -> Result<char, String> {
    let bad = || format!("invalid escape sequence: `\\{c}`");
    Ok(match c {
        'a' => '\x07',
        'f' => '\x0c',
        't' => '\t',
        'n' => '\n',
        'r' => '\r',
        'v' => '\x0b',
        'x' => hexadecimal(rest).ok_or_else(bad)?,
        // `\0`, or an octal number with more digits; RE2 has no back references.
        '0' => octal(0, rest),
        '1'..='7' if rest.peek().is_some_and(|next| next.is_digit(8)) => {
            octal(c.to_digit(8).unwrap_or_default(), rest)
        }
        _ if c.is_ascii_punctuation() => c,
        _ => return Err(bad()),
    })
}

fn octal(first: u32, rest: &mut Rest<'_>) -> char {
    let mut value = first;
    for _ in 0..2 {
        let Some(digit) = rest.peek().and_then(|next| next.to_digit(8)) else {
            break;
        };
        rest.next();
        value = value * 8 + digit;
    }
    char::from_u32(value).unwrap_or_default()
}

fn hexadecimal(rest: &mut Rest<'_>) -> Option<char> {
    let first = rest.next()?;
    let digits: String = if first == '{' {
        rest.by_ref().take_while(|&c| c != '}').take(8).collect()
    } else {
        [first, rest.next()?].iter().collect()
    };
    let is_hex = digits.chars().all(|c| c.is_ascii_hexdigit());
    let value = u32::from_str_radix(&digits, 16).ok().filter(|_| is_hex)?;
    char::from_u32(value)
}

fn literal(c: char, out: &mut String) {
    if c.is_alphanumeric() {
        out.push(c);
    } else {
        write!(out, "\\x{{{:X}}}", u32::from(c)).ok();
    }
}

/// Translates a class; the opening bracket has been read.
fn class(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    let missing = || "missing closing ]".to_owned();
    out.push('[');
    if rest.peek() == Some(&'^') {
        rest.next();
        out.push('^');
    }
    let mut is_first = true;
    loop {
        let c = rest.next().ok_or_else(missing)?;
        if c == ']' && !is_first {
            out.push(']');
            return Ok(());
        }
        is_first = false;
        if c == '[' && rest.peek() == Some(&':') && posix_class(rest, out)? {
            continue;
        }
        let low = if c == '\\' {
            let c = rest.next().ok_or_else(missing)?;
            if let Some(ascii) = perl_class(c) {
                write!(out, "[{ascii}]").ok();
                continue;
            }
            if c == 'p' || c == 'P' {
                property(c, rest, out)?;
                continue;
            }
            escaped_char(c, rest)?
        } else {
            c
        };
        literal(low, out);
        let mut ahead = rest.clone();
        if ahead.next() == Some('-') && ahead.peek().is_some_and(|&next| next != ']') {
            rest.next();
            let c = rest.next().ok_or_else(missing)?;
            let high = if c == '\\' {
                let c = rest.next().ok_or_else(missing)?;
                escaped_char(c, rest)?
            } else {
                c
            };
            out.push('-');
            literal(high, out);
        }
    }
}

/// `[:alpha:]` and `[:^alpha:]`; the first bracket has been read. False if it is none.
fn posix_class(rest: &mut Rest<'_>, out: &mut String) -> Result<bool, String> {
    let mut ahead = rest.clone();
    ahead.next();
    let name: String = ahead.by_ref().take_while(|&c| c != ':').collect();
    if ahead.next() != Some(']') {
        return Ok(false);
    }
    let known = name.strip_prefix('^').unwrap_or(&name);
    if known.is_empty() || !known.chars().all(|c| c.is_ascii_lowercase()) {
        return Err(format!("invalid character class range: `[:{name}:]`"));
    }
    *rest = ahead;
    write!(out, "[:{name}:]").ok();
    Ok(true)
}

/// Translates what follows `{`: a repetition, or a literal brace.
fn repetition(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    let mut ahead = rest.clone();
    let inside: String = ahead.by_ref().take_while(|&c| c != '}').collect();
    let is_closed = inside.len() < rest.clone().map(char::len_utf8).sum();
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (low, high) = inside.split_once(',').unwrap_or((&inside, ""));
    if !is_closed || !number(low) || !(high.is_empty() || number(high)) {
        literal('{', out);
        return Ok(());
    }
    let over =
        |text: &str| !text.is_empty() && text.parse::<u32>().map_or(true, |count| count > MAX_REPETITIONS);
    if over(low) || over(high) {
        return Err(format!("invalid repeat count: `{{{inside}}}`"));
    }
    write!(out, "{{{inside}}}").ok();
    *rest = ahead;
    Ok(())
}

/// Translates what follows `(`, up to the end of a group's head.
fn group(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    out.push('(');
    if rest.peek() != Some(&'?') {
        return Ok(());
    }
    rest.next();
    out.push('?');
    // The name of a group is checked when the pattern is compiled.
    if matches!(rest.peek(), Some('P' | '<')) {
        return Ok(());
    }
    for c in rest.by_ref() {
        match c {
            'i' | 'm' | 's' | 'U' | '-' => out.push(c),
            ':' | ')' => {
                out.push(c);
                return Ok(());
            }
            _ => break,
        }
    }
    Err("invalid or unsupported Perl syntax after `(?`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the whole text matches.
    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().is_match(text)
    }

    #[test]
    fn perl_classes_are_ascii() {
        assert!(matches(r"\d+", "19") && !matches(r"\d", "\u{0663}"));
        assert!(matches(r"\w+", "aZ_9") && !matches(r"\w", "é"));
        assert!(matches(r"[\w.]+", "a.b") && !matches(r"[\w.]", "é"));
        assert!(matches(r"\s", "\x0c") && !matches(r"\s", "\u{a0}") && !matches(r"\s", "\x0b"));
        assert!(matches(r"é\bx", "éx"), "é is no word character");
        assert!(matches(r"[^\d]\D", "ab") && matches(r"[\D]", "a"));
    }

    #[test]
    fn operators_of_the_other_dialect_are_literals() {
        assert!(matches("[[a]+", "[a[") && matches("[a&&b]+", "a&b") && matches("[a~~b]+", "~"));
        assert!(matches("[+--]+", "+,-") && matches("[]a]+", "]a") && matches("[a-]+", "a-"));
        assert!(matches("a{", "a{") && matches("a{,2}", "a{,2}") && matches("{}", "{}"));
        assert!(matches("[[:alpha:][:^word:]]+", "a-b") && matches(r"\Qa.b\E+", "a.bb"));
        assert!(matches(r"\101\x41\x{42}\.", "AAB.") && matches(r"[\x41-\x43]+", "ABC"));
        assert!(matches(r"\pL\p{Greek}\p{^Greek}", "aαa") && matches("(?i)ab", "AB"));
        assert!(matches("(?P<x>a)(?<y>b)(?:c)", "abc") && matches("a.b", "a\nb"));
        assert!(matches("a{2,3}", "aaa") && matches("(?U)a+", "aa"));
    }

    #[test]
    fn anchors_surround_the_whole_pattern() {
        assert!(!matches("a|b", "ab") && matches("a|b", "b") && matches("", ""));
        assert!(matches("^a$", "a"));
    }

    #[test]
    fn invalid_and_oversized_patterns_are_rejected() {
        for pattern in [
            "(",
            ")",
            "[a",
            "a\\",
            "*",
            r"\8",
            r"\1",
            "(?x)a",
            "(?=a)",
            r"\C",
            "a{1001}",
            "[b-a]",
            r"\p{Nonsense}",
            "(?u)a",
            r"\y",
            "((((a{100}){100}){100}){100})",
        ] {
            assert!(compile(pattern).is_err(), "{pattern:?}");
        }
        assert!(compile(&"a".repeat(MAX_PATTERN_BYTES + 1)).is_err());
        assert!(compile(&"(".repeat(2000)).is_err());
        let error = compile("a(").unwrap_err();
        assert_eq!(error, "invalid regex \"a(\": unclosed group");
    }
}
