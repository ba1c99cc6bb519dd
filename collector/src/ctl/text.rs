//! Formatting of values.

use std::fmt::Write as _;

/// Text of other writers, on one line and safe for a terminal: control characters, line separators,
/// and characters that hide or reorder text are escaped; truncated to `max` characters.
pub(super) fn safe(text: &str, max: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(max));
    for (count, c) in text.trim().chars().enumerate() {
        if count == max {
            plain.push('…');
            break;
        }
        if is_unsafe(c) {
            plain.extend(c.escape_unicode());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Whether a terminal interprets, hides or reorders a character.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A JSON document, safe for a terminal: such characters are replaced by JSON escapes (RFC 8259,
/// section 7). JSON itself requires escapes only below U+0020; e.g. U+009B also starts an escape
/// sequence.
pub(super) fn safe_json(document: &str) -> String {
    let mut plain = String::with_capacity(document.len());
    for c in document.chars() {
        if c != '\n' && is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(plain, "\\u{unit:04x}").ok();
            }
        } else {
            plain.push(c);
        }
    }
    plain
}

/// A duration in kubectl's form: `5s`, `3m12s`, `4h5m`, `2d`.
pub(super) fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: u64, unit: char, small: u64, part: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{part}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        _ => two(days / 365, 'y', days % 365, 'd'),
    }
}

/// The time from `then` to `now`, both in milliseconds since 1970. Clocks may differ: a future time
/// is `0s`.
pub(super) fn since(now: u64, then: u64) -> String {
    age(now.saturating_sub(then) / 1000)
}

/// Bytes with a binary unit, e.g. `3.5Gi`.
pub(super) fn bytes(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "Ki", "Mi", "Gi", "Ti"] {
        if value.abs() < 1024.0 {
            let digits = usize::from(unit != "B");
            return format!("{value:.digits$}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1}Pi")
}

/// `1 finding`, `2 findings`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        for (seconds, text) in [
            (0, "0s"),
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (192, "3m12s"),
            (600, "10m"),
            (10_800, "3h"),
            (14_700, "4h5m"),
            (100_000, "27h"),
            (172_800, "2d"),
            (200_000, "2d7h"),
            (864_000, "10d"),
            (63_072_000, "2y"),
            (u64::MAX, "584942417355y26d"),
        ] {
            assert_eq!(age(seconds), text, "{seconds}");
        }
        assert_eq!(
            (since(5_000, 9_000), since(9_999, 5_000)),
            ("0s".into(), "4s".into())
        );
    }

    #[test]
    fn sizes() {
        for (size, text) in [
            (0.0, "0B"),
            (1023.0, "1023B"),
            (1536.0, "1.5Ki"),
            (3_758_096_384.0, "3.5Gi"),
            (2f64.powi(60), "1024.0Pi"),
        ] {
            assert_eq!(bytes(size), text);
        }
        assert_eq!(
            (count(1, "finding"), count(0, "finding")),
            ("1 finding".into(), "0 findings".into())
        );
    }

    #[test]
    fn hostile_text_is_escaped() {
        assert_eq!(
            safe(" a\u{1b}[2J\nb\u{202e}c ", 80),
            "a\\u{1b}[2J\\u{a}b\\u{202e}c"
        );
        assert_eq!(safe("zone é 北", 80), "zone é 北");
        let value = serde_json::json!({ "a": "\u{9b}2J\u{1b}\u{202e}\u{e0041}é" });
        let shown = safe_json(&format!("{value:#}"));
        assert_eq!(shown, "{\n  \"a\": \"\\u009b2J\\u001b\\u202e\\udb40\\udc41é\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert_eq!(safe("abcdef", 3), "abc…");
    }
}
