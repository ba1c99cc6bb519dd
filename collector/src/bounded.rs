//! Text that others wrote, made fit for a log line, a condition and a terminal.

/// `text` with control characters and bidirectional overrides escaped, and cut after `most` characters.
pub(crate) fn bounded(text: &str, most: usize) -> String {
    let mut out = String::with_capacity(text.len().min(most));
    for (count, char) in text.chars().enumerate() {
        if count == most {
            out.push('…');
            break;
        }
        // Bidirectional overrides reorder what a person reads around them.
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
    fn it_is_cut_and_moves_no_cursor() {
        assert_eq!(bounded("plain", 5), "plain");
        assert_eq!(bounded("plain", 4), "plai…");
        assert_eq!(bounded("a\u{1b}[2J\n\u{202e}", 9), "a\\u{1b}[2J\\u{a}\\u{202e}");
        assert_eq!(bounded("äöü", 2), "äö…");
    }
}
