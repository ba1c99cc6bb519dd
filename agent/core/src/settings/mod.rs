//! Validation of the agent's settings beyond what their types check, and the filters of collectors.
//!
//! The agent calls [`merge`] when it loads its settings, `virtfleetctl render` before it prints
//! user-data.

mod config;
mod error;
mod files;
pub mod filters;
pub mod folders;
mod name_filter;
mod names;
mod push;
pub mod sysctl;

pub use config::check;
pub use error::{RegistryError, chain};
pub use files::{FRAGMENT_FOLDERS, MAIN_FILE, ReadingOrder, is_fragment, merge, reading_order};
pub use name_filter::NameFilter;
pub use names::{COLLECTOR_NAMES, check_names, deadline};
