//! Which settings files there are, in which order they count, and what they come to.

use std::collections::BTreeMap;

use virtfleet_wire::{
    layered::{Expect, Fragment, Loaded, load},
    settings::{AGENT_CONFIG_KIND, AgentConfig, CONFIG_API_VERSION},
};

use super::check;

/// The weakest file.
pub const MAIN_FILE: &str = "/etc/virtfleet/agent.yaml";
/// Folders of fragments, weakest first. Of two fragments with the same name only that of the stronger folder counts.
pub const FRAGMENT_FOLDERS: [&str; 3] = [
    "/usr/lib/virtfleet/agent.d",
    "/etc/virtfleet/agent.d",
    "/run/virtfleet/agent.d",
];
/// Sections of which only the wrong values are dropped: without them nothing could be reported at all.
const KEEP: [&str; 2] = ["server", "log"];

/// Fragments as the agent reads them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReadingOrder {
    /// Paths to read, weakest first: by name, whatever the folder.
    pub read: Vec<String>,
    /// Paths that a stronger one of the same name replaces.
    pub masked: Vec<String>,
}

/// Whether a file of a folder of fragments is one, by its name.
pub fn is_fragment(name: &str) -> bool {
    !name.starts_with('.') && name.strip_suffix(".yaml").is_some_and(|stem| !stem.is_empty())
}

/// Orders fragments, each as its folder and its name, given in the order of [`FRAGMENT_FOLDERS`].
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

/// Merges files, weakest first, and checks what they come to. Never fails: what is wrong is named and not applied.
pub fn merge(fragments: &[Fragment]) -> Loaded<AgentConfig> {
    let expect = Expect {
        api_version: CONFIG_API_VERSION,
        kind: AGENT_CONFIG_KIND,
    };
    let mut loaded = load::<AgentConfig>(fragments, expect, &KEEP);
    loaded.problems.extend(check(&mut loaded.value, &loaded.origins));
    loaded
}
