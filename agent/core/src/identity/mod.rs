//! Pure readers of what a guest's files say about who it is: text or bytes in, values out.
//!
//! Every reader takes what the caller has read, returns what it finds, and says nothing about what it does not know. Which
//! files are read, and which of two answers counts, is decided in `agent/src/identity`.

pub mod cloud;
pub mod dmi;
pub mod downward;
pub mod kubelet;
pub mod net;
pub mod unit;
