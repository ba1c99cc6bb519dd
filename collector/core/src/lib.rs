//! What decides in the collector: who is who, who stands where, and what is wrong. No runtime, no files, no clock; the
//! time of an observation is passed in.
//!
//! ```text
//! facts (inventory) ──▶ index ──▶ view (API, metrics, CLI)
//! heard (scrape)    ──▶   │
//!                         └──▶ dial: which address of a VM may be dialled
//! ```

pub mod facts;
pub mod heard;
pub mod view;
