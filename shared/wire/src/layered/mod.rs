//! YAML fragments → one merged, located, checked value.
//!
//! ```text
//! text ─ yaml ─▶ Node (value + line) ─ … ─▶ typed settings, or problems with file and line
//! ```

mod yaml;

pub use yaml::{MAX_DEPTH, Node, NodeValue, YamlError, parse_yaml, to_yaml};
