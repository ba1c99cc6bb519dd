//! What the benchmarks are made of: what a process costs, and tables to print it in.

pub mod reads;
mod table;
pub mod usage;

pub use table::Table;
