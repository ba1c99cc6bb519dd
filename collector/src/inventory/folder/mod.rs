//! The manifest folder: ordinary Kubernetes manifests as the inventory, the embedded default.
//!
//! ```text
//! <folder>/infra/…            VirtualMachineInstance, VirtualMachine, Node, migrations of the infra cluster
//! <folder>/clusters/<name>/…  UserCluster of that name, and its Nodes
//! <folder>/policies/…         LabelPropagation
//!
//! scan (names) ─▶ watch (effects) ─ path, text ─▶ reader (pure) ─ manifest ─ convert ─▶ facts ─▶ events
//! ```
//! - A file is taken whole or not at all. When anything in it is broken it keeps its last good state and is named with the
//!   line; other files go on. So a half-written file never moves or removes a VM.
//! - An empty file (no bytes, or only comments) is broken, too, because editors truncate before they write. To remove a
//!   file's objects, delete the file.
//! - An object in two files is taken from the first by path; the other is a finding.

use virtfleet_collector_core::{facts::Fact, labels::policy::LabelPolicy};

mod convert;
mod follow;
mod manifest;
pub mod place;
pub mod reader;
mod scan;
pub mod watch;

pub use watch::{WatchError, watch};

/// The `LabelPropagation`s of a manifest's text; the error is `line: what is wrong`. Anything else in it is wrong.
pub(crate) fn policies(text: &str) -> Result<Vec<LabelPolicy>, String> {
    let manifest = manifest::read(text, &place::Place::Policies)
        .map_err(|problem| format!("{}: {}", problem.line, problem.message))?;
    if let Some((line, kind)) = manifest.ignored.first() {
        return Err(format!(
            "{line}: {kind} is no virtfleet.io/v1alpha1 LabelPropagation"
        ));
    }
    let facts = manifest.facts.into_values();
    Ok(facts
        .filter_map(|(_, fact)| match fact {
            Fact::Policy(policy) => Some(*policy),
            _ => None,
        })
        .collect())
}

#[cfg(test)]
mod policies_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod watch_tests;
