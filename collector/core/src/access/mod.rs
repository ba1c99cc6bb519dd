//! Who may see which part of the fleet, and how infra names are hidden from tenants.
//!
//! ```text
//! caller ─▶ scope (all, or namespaces and user clusters) ─▶ tenant_fleet: a smaller fleet ─▶ redact: infra names hashed
//! ```
//! The result is a fleet again: handlers of the API build their answers from it as from the whole
//! fleet, so that filters, totals, pages and errors cannot contain what the caller may not see. All
//! functions here are pure; `collector/src/access` authenticates callers and reviews their rights.

mod caller;
mod clusters;
mod findings;
mod hosts;
pub mod redact;
mod scope;
mod story;
mod tenant_fleet;
#[cfg(test)]
mod tests;
mod visible;

pub use caller::{AuthMethod, Caller};
pub use findings::{tenant_failure, tenant_finding, tenant_findings};
pub use scope::AccessScope;
pub use story::tenant_story;
pub use tenant_fleet::{tenant_detail, tenant_label_input, tenant_snapshot};
pub use visible::VisibleFleet;
