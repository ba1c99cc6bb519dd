//! Guest metrics on their way to a tenant's receiver: which samples, with which labels.
//!
//! ```text
//! lines of a page ─▶ page_reader ─▶ GuestPage ─▶ stream ─▶ samples with their final labels
//!                      │ page_layout          ├ stamp: labels of the target
//!                      │ family_table         ├ relabel: the tenant's rules
//!                      │ known_comment        ├ generation, outcomes: what becomes of each series
//!                      └ page_rules           └ page_writer: samples, staleness markers
//! ```

pub mod delivery;
pub mod family_table;
pub mod findings;
mod generation;
mod guest_labels;
mod known_comment;
pub mod memory;
mod outcomes;
mod page_layout;
pub mod page_reader;
pub mod page_rules;
mod page_writer;
pub mod relabel;
mod series_limits;
mod stamp;
pub mod status;
pub mod stream;
pub mod symbols;
mod synthetic;
mod varint;

pub use family_table::{FamilyTable, TableShare};
pub use page_reader::{GuestPage, PageReader};
pub use stream::{SampleSink, SourceKey, StreamSeries};
