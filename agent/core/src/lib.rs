//! What decides in the agent, and touches nothing: parsers, models, plans.

pub mod identity;
pub mod procfs;
