//! systemd and the system bus.

pub(crate) mod bus_calls;
pub mod dbus;
pub(crate) mod service;
