//! Parts of the benchmarks: the cost of a process, and tables for output.

pub mod replay;
mod table;
pub mod usage;

pub use table::Table;
