//! The agent in an OperatingSystemConfig of Gardener (`extensions.gardener.cloud/v1alpha1`), as a
//! JSON patch (RFC 6902) for an admission webhook.
//!
//! ```text
//! payload + image ─ items ─▶ files and one unit ─┐
//! OperatingSystemConfig ─────────────────────────┴─ plan ─▶ patch, warnings
//! ```
//! The rules are those of Gardener (`pkg/apis/extensions/v1alpha1/types_operatingsystemconfig.go`,
//! `pkg/nodeagent/controller/operatingsystemconfig`):
//! - Only the purpose `reconcile` is changed. node-agent applies it on running machines;
//!   `provision` is user-data.
//! - node-agent extracts a file with `imageRef` from a container image, and restarts a unit when
//!   one of its `filePaths` changes.
//! - A start that fails fails the whole configuration, so the only unit runs
//!   `virtfleet-agent install`, and its start cannot fail. The agent's own units are in the binary.
//! - `spec` of an object that is being deleted is immutable.

mod image;
mod items;
mod list;
mod others;
mod plan;
mod record;

pub use image::{AgentImage, PATH_IN_IMAGE};
pub use items::{AgentItems, EXTRACTED_PATH};
pub use plan::{IGNORE_ANNOTATION, OscAction, OscPlan, plan};
pub use record::OWNED_ITEMS_ANNOTATION;

#[cfg(test)]
mod tests;
