//! Replaces infra names in sentences.

use super::Redactor;

/// A word of a sentence, with what is around it.
struct TextWord<'a> {
    word: &'a str,
    /// Between quotes, or after `=`: a value and not a word of the language.
    is_value: bool,
    /// The last part of `namespace/name`.
    is_vm: bool,
}

impl Redactor {
    /// A text with pseudonyms in place of infra names. A text that is a name becomes its pseudonym.
    pub fn text(&self, text: &str) -> String {
        self.text_with(text, &[])
    }

    /// As [`Redactor::text`]; `values` are replaced wherever they are a word.
    pub(super) fn text_with(&self, text: &str, values: &[&str]) -> String {
        if self.terms.has(text) {
            return self.pseudonym(text);
        }
        // A guest may claim a value that is not one word.
        if let Some(value) = values
            .iter()
            .find(|value| !is_word(value) && text.contains(**value))
        {
            let others: Vec<&str> = values.iter().copied().filter(|other| other != value).collect();
            return self.text_with(&text.replace(*value, &self.pseudonym(value)), &others);
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = 0;
        for (start, end) in words(text) {
            out.push_str(&text[rest..start]);
            let word = TextWord {
                word: &text[start..end],
                is_value: is_value(text, start, end),
                is_vm: is_vm(text, start),
            };
            out.push_str(&self.word(&word, values).unwrap_or_else(|| word.word.to_owned()));
            rest = end;
        }
        out.push_str(&text[rest..]);
        out
    }

    /// The replacement of a word; none if it stays.
    fn word(&self, word: &TextWord<'_>, values: &[&str]) -> Option<String> {
        if word.is_vm {
            return None;
        }
        let whole = word.word;
        let plain = whole.trim_end_matches(['.', '-', '_']);
        for candidate in [whole, plain] {
            let is_name = self.terms.has_word(candidate)
                || values.contains(&candidate)
                || (word.is_value && self.terms.has(candidate));
            if is_name {
                return Some(self.pseudonym(candidate) + &whole[candidate.len()..]);
            }
        }
        // The domain name of a node that the inventory knows by its first parts.
        let ends = plain.match_indices('.').map(|(at, _)| at);
        let node = ends
            .rev()
            .map(|at| &plain[..at])
            .find(|part| self.terms.has_node(part))?;
        Some(self.pseudonym(node) + &whole[plain.len()..])
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

/// Whether it is one word, or nothing.
fn is_word(text: &str) -> bool {
    text.bytes().all(is_word_byte)
}

/// Start and end of each longest run of bytes that names and label values consist of.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, byte) in text.bytes().chain([b' ']).enumerate() {
        match (start, is_word_byte(byte)) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                found.push((from, at));
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn is_value(text: &str, start: usize, end: usize) -> bool {
    let bytes = text.as_bytes();
    let before = start.checked_sub(1).and_then(|at| bytes.get(at)).copied();
    let after = bytes.get(end).copied();
    before == Some(b'=') || (before == after && matches!(before, Some(b'"' | b'\'' | b'`')))
}

/// Whether the word follows `namespace/`, and not `node/` as kubectl writes it.
fn is_vm(text: &str, start: usize) -> bool {
    let Some(before) = text[..start].strip_suffix('/') else {
        return false;
    };
    let namespace = before.trim_end_matches(|char: char| char.is_ascii() && is_word_byte(char as u8));
    let namespace = &before[namespace.len()..];
    !matches!(namespace, "" | "node" | "nodes" | "no")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::InfraTerms, *};

    fn redactor() -> Redactor {
        let mut terms = InfraTerms::default();
        for name in ["infra-1", "n2", "rack7.dc.example.com"] {
            terms.add_node(name);
        }
        for value in ["eu-a", "eu", "a", "7", "true"] {
            terms.add_value("zone", value);
        }
        let hash = |text: &str| {
            let mut bytes = [0; 8];
            let from = text.len().saturating_sub(8);
            bytes[..text.len().min(8)].copy_from_slice(&text.as_bytes()[from..]);
            bytes
        };
        Redactor::new(Arc::new(hash), Arc::new(terms))
    }

    #[test]
    fn names_in_sentences_are_replaced() {
        let redactor = redactor();
        let of = |name: &str| redactor.pseudonym(name);
        for (text, expected) in [
            ("runs on infra-1.", format!("runs on {}.", of("infra-1"))),
            ("infra-1", of("infra-1")),
            ("infra-1, n2", format!("{}, {}", of("infra-1"), of("n2"))),
            ("(node n2)", format!("(node {})", of("n2"))),
            (
                "kubectl get node infra-1 -o yaml",
                format!("kubectl get node {} -o yaml", of("infra-1")),
            ),
            (
                "kubectl get node/infra-1",
                format!("kubectl get node/{}", of("infra-1")),
            ),
            ("https://infra-1:6443", format!("https://{}:6443", of("infra-1"))),
            ("infra-1.dc.local is down", format!("{} is down", of("infra-1"))),
            (
                "rack7 and rack7.dc.example.com",
                format!("{0} and {0}", of("rack7.dc.example.com")),
            ),
            ("zone eu-a", format!("zone {}", of("eu-a"))),
            (
                "zone=a, rack \"7\"",
                format!("zone={}, rack \"{}\"", of("a"), of("7")),
            ),
            ("a", of("a")),
        ] {
            assert_eq!(redactor.text(text), expected, "{text}");
        }
    }

    #[test]
    fn other_words_stay() {
        let redactor = redactor();
        for text in [
            "a guest with 7 disks",
            "cluster-a/infra-1 is silent",
            "infra-12",
            "my-infra-1",
            "xn2",
            "true",
            "",
            "ä → ö",
            "eu",
        ] {
            let expected = if text == "eu" {
                redactor.pseudonym("eu")
            } else {
                text.to_owned()
            };
            assert_eq!(redactor.text(text), expected, "{text}");
        }
        assert_eq!(
            redactor.text_with("zone a", &["a"]),
            format!("zone {}", redactor.pseudonym("a"))
        );
    }
}
