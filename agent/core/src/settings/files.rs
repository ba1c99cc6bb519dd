//! Settings files, their precedence, and the result of merging them.

use std::collections::BTreeMap;

use virtfleet_wire::{
    layered::{Expect, Fragment, Loaded, load},
    settings::{AGENT_CONFIG_KIND, AgentConfig, CONFIG_API_VERSION},
};

use super::check;

/// File with the lowest precedence.
pub const MAIN_FILE: &str = "/etc/virtfleet/agent.yaml";
/// Folders of fragments, in ascending precedence. A fragment replaces those with the same name in
/// folders of lower precedence.
pub const FRAGMENT_FOLDERS: [&str; 3] = [
    "/usr/lib/virtfleet/agent.d",
    "/etc/virtfleet/agent.d",
    "/run/virtfleet/agent.d",
];
/// Sections of which only invalid values are dropped: without them nothing could be reported.
const LENIENT_SECTIONS: [&str; 2] = ["server", "log"];

/// Order in which the agent reads fragments.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReadingOrder {
    /// Paths to read, in ascending precedence: by name, in all folders.
    pub read: Vec<String>,
    /// Paths that a fragment of the same name replaces.
    pub masked: Vec<String>,
}

/// Whether a file in a folder of fragments is a fragment, by its name.
pub fn is_fragment(name: &str) -> bool {
    !name.starts_with('.') && name.strip_suffix(".yaml").is_some_and(|stem| !stem.is_empty())
}

/// Orders fragments, given as folder and name in the order of [`FRAGMENT_FOLDERS`].
pub fn reading_order<'f>(found: impl IntoIterator<Item = (&'f str, String)>) -> ReadingOrder {
    let mut order = ReadingOrder::default();
    let mut by_name: BTreeMap<String, &str> = BTreeMap::new();
    for (folder, name) in found {
        if let Some(weaker) = by_name.insert(name.clone(), folder) {
            order.masked.push(format!("{weaker}/{name}"));
        }
    }
    let paths = by_name
        .into_iter()
        .map(|(name, folder)| format!("{folder}/{name}"));
    order.read = paths.collect();
    order
}

/// Merges files in ascending precedence, and checks the result. Problems are reported, and the
/// values not applied.
pub fn merge(fragments: &[Fragment]) -> Loaded<AgentConfig> {
    let expect = Expect {
        api_version: CONFIG_API_VERSION,
        kind: AGENT_CONFIG_KIND,
    };
    let mut loaded = load::<AgentConfig>(fragments, expect, &LENIENT_SECTIONS);
    loaded.problems.extend(check(&mut loaded.value, &loaded.origins));
    loaded
}
