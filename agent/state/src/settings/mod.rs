//! The agent's settings: which files are read, in which order, and what comes of them.
//!
//! ```text
//! files ─ load ─▶ merged, typed settings ─ check ─▶ LoadedSettings ─▶ run · report · doctor · check-config
//! ```
//!
//! Nothing here fails: an agent whose settings are wrong still runs and says so. `docs/settings.md` has the rules.

pub mod dns;
mod files;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
};

use serde_json::Value;
use virtfleet_agent_core::settings::merge;
use virtfleet_agent_host::Roots;
use virtfleet_wire::{
    layered::{Origins, Problem},
    settings::{AGENT_CONFIG_KIND, AgentConfig, CONFIG_API_VERSION, agent_config_schema},
};

/// The settings that this agent runs with, and how they came about.
#[derive(Debug, Clone)]
pub struct LoadedSettings {
    /// What to run with. Sections with a problem have their defaults; listeners with a problem are left out.
    pub config: AgentConfig,
    /// All that is wrong with the files.
    pub problems: Vec<Problem>,
    /// Who set what.
    pub origins: Origins,
    /// Files that were read and applied, weakest first, by their path in the guest.
    pub files: Vec<String>,
    /// Files that were read or tried and left out whole.
    pub skipped: Vec<String>,
    /// Files that a stronger one of the same name replaces, or that an empty one masks.
    pub masked: Vec<String>,
}

impl LoadedSettings {
    /// What tells these settings from others: 16 hexadecimal digits, the same for settings that come to the same, however the
    /// files are cut. Two versions of the agent may differ; then a restart too many is the worst that comes of it.
    pub fn digest(&self) -> String {
        let mut hasher = DefaultHasher::new();
        // Maps are sorted, so the text is the same for the same settings.
        serde_json::to_string(&self.config)
            .unwrap_or_default()
            .hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

/// Reads the settings below `roots.rootfs`, or one file alone when the caller names it (a path as the caller sees it).
pub fn load(roots: &Roots, explicit: Option<&Path>) -> LoadedSettings {
    let found = match explicit {
        Some(path) => files::read_one(path),
        None => files::read_all(roots),
    };
    let loaded = merge(&found.fragments);
    let mut problems = found.problems;
    problems.extend(loaded.problems);
    let files = found.fragments.into_iter().map(|fragment| fragment.file);
    let (applied, mut skipped): (Vec<_>, Vec<_>) = files.partition(|file| !loaded.skipped.contains(file));
    skipped.extend(found.unreadable);
    LoadedSettings {
        config: loaded.value,
        problems,
        origins: loaded.origins,
        files: applied,
        skipped,
        masked: found.masked,
    }
}

/// The JSON Schema of the settings, for editors and for `virtfleet-agent schema`.
pub fn schema() -> Value {
    let mut schema = agent_config_schema();
    if let Some(schema) = schema.as_object_mut() {
        let id = format!("https://{CONFIG_API_VERSION}/{AGENT_CONFIG_KIND}.schema.json");
        schema.insert("$id".to_owned(), id.into());
    }
    schema
}

#[cfg(test)]
mod tests;
