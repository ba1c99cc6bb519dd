//! The relay: passes bytes between the collector and the VMs of a tenant's network, which network
//! policies or a second interface separate from the collector.
//!
//! ```text
//! collector ── CONNECT ─▶ connect ─▶ bridge ─▶ VM          (pull)
//! VM ── any bytes ─────▶ forward ─▶ bridge ─▶ collector    (push)
//! ```
//! TLS is between collector and agent, with certificates on both sides, so the relay can neither
//! read nor forge what they send. `connect` allows only the agents' port and configured networks.
//! Connections are limited in all and per peer; each holds two buffers of fixed size.

mod args;
mod bridge;
mod connect;
mod forward;
mod listener;
mod metrics;
mod run;
mod stop;

pub use args::RelayArgs;
pub use run::run;
