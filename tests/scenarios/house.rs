//! Tier 1: the rules of the house that a compiler does not hold.
//! `docs/decisions/0002-house-tests.md` says why they are tests of ours and not a tool's
//! configuration.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "all of it is test code, helpers too"
)]

#[path = "house/docs.rs"]
mod docs;
#[path = "house/graph.rs"]
mod graph;
#[path = "house/licence.rs"]
mod licence;
#[path = "house/links.rs"]
mod links;
#[path = "house/modules.rs"]
mod modules;
#[path = "house/promises.rs"]
mod promises;
#[path = "house/rules.rs"]
mod rules;
#[path = "house/tree.rs"]
mod tree;
#[path = "house/walls.rs"]
mod walls;
#[path = "house/words.rs"]
mod words;
