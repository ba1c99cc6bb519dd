//! The agent's settings: finds the files, merges them in order, and checks the result.
//!
//! ```text
//! files ─ load ─▶ merged, typed settings ─ check ─▶ LoadedSettings
//! ```
//!
//! Nothing here fails: an agent with wrong settings still runs and reports the problems.
//! `docs/settings.md` has the rules.

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

/// The settings that this agent runs with, and where they come from.
#[derive(Debug, Clone)]
pub struct LoadedSettings {
    /// The effective settings. Sections with a problem have their defaults; listeners with a
    /// problem are left out.
    pub config: AgentConfig,
    /// All problems of the files.
    pub problems: Vec<Problem>,
    /// Keys of the files that earlier versions had. Nothing else is left out because of them.
    pub ignored: Vec<Problem>,
    /// The file and line that set each value.
    pub origins: Origins,
    /// Files that were read and applied, lowest precedence first, by their path in the guest.
    pub files: Vec<String>,
    /// Files that were found but not applied.
    pub skipped: Vec<String>,
    /// Files that an empty file or a file of the same name with higher precedence masks.
    pub masked: Vec<String>,
}

impl LoadedSettings {
    /// Digest of the settings: 16 hexadecimal digits, equal for equal settings independent of how
    /// they are split into files. It may differ between versions of the agent, which costs one
    /// unnecessary restart.
    pub fn digest(&self) -> String {
        let mut hasher = DefaultHasher::new();
        // Maps are sorted, so equal settings have the same text.
        serde_json::to_string(&self.config)
            .unwrap_or_default()
            .hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

/// Reads the settings below `roots.rootfs`, or only `explicit` (a path as the caller sees it).
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
        ignored: loaded.ignored,
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
