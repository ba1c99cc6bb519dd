//! Parsers for files of the guest that identify it. Pure: text or bytes in, values out.
//!
//! A parser returns only values that are present. `agent/src/identity` decides which files are
//! read, and which value takes precedence.

pub mod cloud;
pub mod dmi;
pub mod downward;
pub mod kubelet;
pub mod net;
pub mod unit;
