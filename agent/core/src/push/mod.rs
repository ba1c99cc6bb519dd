//! How collectors reach this agent: which way is used, when the agent connects to the collector
//! itself (decision 0033), and what report and doctor say.

mod describe;
pub mod findings;
pub mod record;
pub mod scheduler;

pub use describe::{WayInUse, describe, way_in_use};
