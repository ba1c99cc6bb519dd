//! Conditions of a VM that are also written to `status.conditions` of its Node in the user cluster,
//! where a `UserCluster` requests it. Pure; the caller passes the time.
//!
//! ```text
//! UserCluster.spec.nodeConditions ─┐
//! health conditions of the VM ─────┼─▶ plan ─▶ patch of virtfleet.io/ conditions, or nothing
//! conditions of the Node ──────────┘
//! ```
//! - Only types with the prefix `virtfleet.io/` are set or removed.
//! - The plan needs no memory: what the Node has and what is requested decide. So a restart of the
//!   collector rewrites nothing, and removes what is not requested any more.

mod kind;
mod plan;
#[cfg(test)]
mod tests;

pub use kind::{NODE_CONDITION_PREFIX, NodeConditionKind};
pub use plan::{
    MAX_NODE_MESSAGE_BYTES, NodeConditionInput, NodeConditionPatch, PlannedCondition, plan_conditions,
};
