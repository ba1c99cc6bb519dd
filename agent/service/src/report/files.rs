//! One-line files of procfs and sysfs as values; none if the file is missing or malformed.

use std::path::Path;

use serde_json::{Map, Value};
use virtfleet_agent_host::read_value;
pub(super) use virtfleet_agent_host::{read_line as line, read_value as number};

/// `0` or `1`.
pub(super) fn flag(path: &Path) -> Option<bool> {
    Some(read_value::<u8>(path)? != 0)
}

/// An object of the values that are present.
pub(super) fn object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    let present = entries
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}
