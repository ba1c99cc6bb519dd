//! What decides in the collector: who is who, who stands where, and what is wrong. No runtime, no files, no clock; the
//! time of an observation is passed in.
//!
//! ```text
//! facts (inventory) ──▶ index ──▶ view (API, metrics, CLI)
//! heard (scrape)    ──▶   │
//!                         ├──▶ dial: which address of a VM may be dialled
//!                         ├──▶ labels: which labels its Node should carry, and the patch
//!                         └──▶ health: what is said of it in one word an aspect
//! ```
//!
//! Inside the index: [`index`] takes events and finds whom they touch, `keys` says what a VM shares with others, [`tenant`]
//! and `join` say whose it is and which Node it is, [`pending`] whose it might become, [`state`] and [`identity`] judge it, `derive` puts its view and findings
//! together, `snapshot` counts hosts and clusters.

mod agent;
pub mod budget;
mod derive;
mod detail;
pub mod dial;
pub mod facts;
mod few;
pub mod findings;
pub mod health;
pub mod heard;
pub mod identity;
pub mod index;
mod join;
mod keys;
pub mod labels;
pub mod pending;
pub mod report;
mod selectors;
mod snapshot;
pub mod state;
mod store;
pub mod tenant;
mod text;
pub mod view;
