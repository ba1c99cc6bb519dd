//! Parts of the benchmarks: the cost of a process, and tables for output; and gates on costs.

pub mod allocation;
mod many;
mod ratchet;
pub mod replay;
mod table;
pub mod usage;

pub use many::many;
pub use ratchet::ratchet;
pub use table::Table;
