//! Plans the labels of the Nodes of user clusters: a pure function from facts and policies to
//! patches. In any order of events, equal facts give equal labels.
//!
//! ```text
//! LabelPropagation objects ─ merge ─▶ desired keys ─┐
//! infra node's labels ─────────────────────────────┼─ plan ─▶ decisions, patch ─▶ sender (collector/src/labels)
//! user Node's labels, ownership annotation ────────┤
//! objects that depend on the Node (on demand) ──────┘
//!
//! plan: decide (one key) ─▶ pairs (beta and GA together) ─▶ safety (all changes) ─▶ decisions, labels, annotation
//! ```

mod action;
mod decide;
mod decision;
pub mod evidence;
pub mod guard;
mod input;
pub mod merge;
mod outcome;
pub mod owned;
pub mod pairs;
pub mod plan;
pub mod policy;
mod safety;
mod steps;
