//! YAML fragments → one merged and validated value, with file and line of each part.
//!
//! ```text
//! text ─ yaml ─▶ Node (value + line) ─ tree ─▶ Tree (value + file:line) ─ screen ─▶ without unknown keys
//!                                                │ merge, lowest precedence first
//!                                                ▼
//!                                             merged over defaults ─ load ─▶ typed value, problems, origins
//! ```
//!
//! Both programs load every settings file with it. This module reads no files: the caller passes
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
pub use yaml::{MAX_DEPTH, Node, NodeValue, YamlError, has_alias, parse_yaml, to_yaml};
