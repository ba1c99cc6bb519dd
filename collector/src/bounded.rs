//! Escapes and truncates text of other writers for logs, conditions and terminals.

/// `text` with control characters and bidirectional overrides escaped, truncated after `max`
/// characters.
pub(crate) fn bounded(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    for (count, char) in text.chars().enumerate() {
        if count == max {
            out.push('…');
            break;
        }
        // Bidirectional overrides reorder the surrounding text on a terminal.
        let reorders =
            matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if char.is_control() || reorders {
            out.extend(char.escape_unicode());
        } else {
            out.push(char);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_truncated_and_escaped() {
        assert_eq!(bounded("plain", 5), "plain");
        assert_eq!(bounded("plain", 4), "plai…");
        assert_eq!(bounded("a\u{1b}[2J\n\u{202e}", 9), "a\\u{1b}[2J\\u{a}\\u{202e}");
        assert_eq!(bounded("äöü", 2), "äö…");
    }
}
