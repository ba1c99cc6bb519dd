//! Which labels the Nodes of user clusters should carry, and the patch that gets them there. A function from facts and policy
//! to patches: whatever the order of events, equal facts end in equal labels.
//!
//! ```text
//! LabelPropagation objects ─ merge ─▶ wanted keys ─┐
//! infra node's labels ─────────────────────────────┼─ plan ─▶ decisions, patch ─▶ sender (collector/src/labels)
//! user Node's labels, ownership annotation ────────┤
//! what depends on the Node (only when asked for) ──┘
//!
//! plan: decide (one key) ─▶ pairs (beta and GA together) ─▶ safety (all at once) ─▶ decisions, labels, annotation
//! ```

mod decide;
pub mod evidence;
pub mod guard;
pub mod merge;
pub mod owned;
mod pairs;
pub mod plan;
pub mod policy;
mod safety;
mod steps;
