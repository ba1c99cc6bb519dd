//! The manifest folder: Kubernetes manifests as the inventory. This is the default.
//!
//! ```text
//! <folder>/infra/…            VirtualMachineInstance, VirtualMachine, Node, Namespace and
//!                             migrations
//! <folder>/clusters/<name>/…  UserCluster of that name, its Nodes, and Secrets that its spec.mla
//!                             names
//! <folder>/policies/…         LabelPropagation
//!
//! scan (names) ─▶ watch (I/O) ─ path, text ─▶ reader (pure) ─ manifest ─ convert ─▶ facts ─▶
//! events
//! ```
//! - A file is used completely or not at all. If anything in it is invalid, its last valid version
//!   is used, and a finding names the line; other files are not affected. So a half-written file
//!   never moves or removes a VM.
//! - An empty file (no bytes, or only comments) is invalid, too, because editors truncate before
//!   they write. To remove a file's objects, delete the file.
//! - An object in two files is used from the first file by path; the other one is a finding.

use virtfleet_collector_core::{facts::Fact, labels::policy::LabelPolicy};

mod convert;
mod follower;
mod manifest;
pub mod reader;
mod scan;
pub mod scope;
mod streams;
pub mod watch;

pub use watch::{WatchError, watch};

/// The `LabelPropagation`s of a manifest's text. Other kinds are an error.
///
/// # Errors
/// `line: problem`.
pub(crate) fn policies(text: &str) -> Result<Vec<LabelPolicy>, String> {
    let manifest = manifest::read(text, &scope::ManifestScope::Policies)
        .map_err(|problem| format!("{}: {}", problem.line, problem.message))?;
    if let Some((line, kind)) = manifest.ignored.first() {
        return Err(format!(
            "{line}: {kind} is not a virtfleet.io/v1alpha1 LabelPropagation"
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
