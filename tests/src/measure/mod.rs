//! What the benchmarks are made of: what a process costs, and tables to print it in.

mod table;
pub mod usage;

pub use table::Table;
