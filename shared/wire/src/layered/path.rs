//! Paths of values in a settings tree, printed as `server.listeners[local].address`.

use std::fmt::Write;

/// One step from a collection to one of its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Key of a mapping.
    Key(String),
    /// Item of a list: its index, and its `name` if it has one.
    Item(usize, Option<String>),
}

/// Prints a path. Quotes a key or name that contains a special character of paths.
pub(super) fn print(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(&word(key));
            }
            // Writing to a string cannot fail.
            Step::Item(_, Some(name)) => drop(write!(text, "[{}]", word(name))),
            Step::Item(index, None) => drop(write!(text, "[{index}]")),
        }
    }
    text
}

fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_/:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("{text:?}")
    }
}

/// Whether a printed path equals `outer` or is inside it.
pub(super) fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}
