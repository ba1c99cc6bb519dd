//! One-line files of procfs and sysfs as values; none if the file is missing or malformed.

use std::{path::Path, str::FromStr};

use serde_json::{Map, Value};
use virtfleet_agent_host::read_text;

/// A trimmed line; none when it is empty.
pub(super) fn line(path: &Path) -> Option<String> {
    let text = read_text(path, 4096).ok()?;
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    (!text.is_empty()).then_some(text)
}

/// A number.
pub(super) fn number<T: FromStr>(path: &Path) -> Option<T> {
    line(path)?.parse().ok()
}

/// `0` or `1`.
pub(super) fn flag(path: &Path) -> Option<bool> {
    Some(number::<u8>(path)? != 0)
}

/// An object of the values that are present.
pub(super) fn object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    let present = entries
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}
