//! The collector.

fn main() {}
