//! Settings files, their precedence, and the result of merging them.

use std::collections::BTreeMap;

use virtfleet_wire::{
    layered::{Expect, Fragment, Loaded, load},
    settings::{AGENT_CONFIG_KIND, AgentConfig, CONFIG_API_VERSION},
};

use super::check;

/// Main settings file. It has the lowest precedence.
pub const MAIN_FILE: &str = "/etc/virtfleet/agent.yaml";
/// Folders of fragments, in ascending precedence. A fragment replaces those with the same name in
/// folders of lower precedence.
pub const FRAGMENT_FOLDERS: [&str; 3] = [
    "/usr/lib/virtfleet/agent.d",
    "/etc/virtfleet/agent.d",
    "/run/virtfleet/agent.d",
];
/// Sections in which only the invalid values are not applied. In all others one invalid value
/// resets the whole section to its defaults. Without these two the agent could not report problems.
const LENIENT_SECTIONS: [&str; 2] = ["server", "log"];

/// Order in which the agent reads fragments.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReadingOrder {
    /// Paths to read, in ascending precedence: sorted by file name, regardless of the folder.
    pub read: Vec<String>,
    /// Paths not to read: a folder of higher precedence has a fragment of the same name.
    pub masked: Vec<String>,
}

/// Whether this file name in a folder of fragments is that of a fragment: `*.yaml`, not hidden.
pub fn is_fragment(name: &str) -> bool {
    !name.starts_with('.') && name.strip_suffix(".yaml").is_some_and(|stem| !stem.is_empty())
}

/// Orders fragments. `found`: the folder and file name of each, in the order of
/// [`FRAGMENT_FOLDERS`].
pub fn reading_order<'f>(found: impl IntoIterator<Item = (&'f str, String)>) -> ReadingOrder {
    let mut order = ReadingOrder::default();
    let mut by_name: BTreeMap<String, &str> = BTreeMap::new();
    for (folder, name) in found {
        if let Some(lower) = by_name.insert(name.clone(), folder) {
            order.masked.push(format!("{lower}/{name}"));
        }
    }
    let paths = by_name
        .into_iter()
        .map(|(name, folder)| format!("{folder}/{name}"));
    order.read = paths.collect();
    order
}

/// Merges fragments, given in ascending precedence, and checks the result. [`Loaded::problems`]
/// lists the invalid values, which are not applied.
pub fn merge(fragments: &[Fragment]) -> Loaded<AgentConfig> {
    let expect = Expect {
        api_version: CONFIG_API_VERSION,
        kind: AGENT_CONFIG_KIND,
    };
    let mut loaded = load::<AgentConfig>(fragments, expect, &LENIENT_SECTIONS);
    loaded.problems.extend(check(&mut loaded.value, &loaded.origins));
    loaded
}
