//! YAML fragments → one merged, located, checked value.
//!
//! ```text
//! text ─ yaml ─▶ Node (value + line) ─ tree ─▶ Tree (value + file:line) ─ screen ─▶ unknown keys out
//!                                                │ merge, weakest first
//!                                                ▼
//!                                             defaults beneath ─ load ─▶ typed value, problems, origins
//! ```
//!
//! Used for every settings file of both programs. Nothing here reads a file: the caller passes
//! names and texts.

mod load;
mod origin;
mod origins;
mod path;
mod problem;
mod schema;
mod tree;
mod yaml;

pub use load::{Expect, Fragment, Loaded, load};
pub use origins::{Leaf, Origins};
pub use problem::Problem;
pub use tree::Origin;
pub use yaml::{MAX_DEPTH, Node, NodeValue, YamlError, parse_yaml, to_yaml};
