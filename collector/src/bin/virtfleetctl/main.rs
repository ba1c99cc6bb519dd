//! The CLI.

fn main() {}
