//! virtfleet-collector as a library.
