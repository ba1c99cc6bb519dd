//! Files with plans, as `plan -o json` writes them.

use std::path::Path;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use virtfleet_agent_host::read_text;

use super::verb::Domain;

/// Limit of a plan file, in bytes. A plan takes a few KiB for each disk.
const MAX_PLAN_BYTES: usize = 4 << 20;

/// Reads the plan of `subject` from a file that holds this plan alone, or several.
///
/// # Errors
/// The file cannot be read or is too large, or holds no plan of `subject`.
pub(super) fn read_plan<T: DeserializeOwned>(path: &Path, subject: &str) -> anyhow::Result<T> {
    let how = format!("virtfleet-agent plan {subject} -o json > FILE writes one");
    let shown = path.display();
    let text = read_text(path, MAX_PLAN_BYTES)
        .with_context(|| format!("the plan that is to be applied cannot be read from {shown}; {how}"))?;
    let part = |value: &mut Value| {
        let is_there = |domain: &Domain| value.get(domain.word()).is_some_and(Value::is_object);
        let several = Domain::VALUES.iter().filter(|domain| is_there(domain)).count() > 1;
        match value.get_mut(subject) {
            Some(part) if several => part.take(),
            _ => value.take(),
        }
    };
    serde_json::from_str(&text)
        .and_then(|mut value: Value| serde_json::from_value(part(&mut value)))
        .with_context(|| format!("{shown} holds no plan of {subject}; {how}"))
}
