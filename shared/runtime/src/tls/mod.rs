//! TLS 1.3 with certificates on both sides, from PEM files that are reloaded when they change.
//!
//! Every configuration names ring as its provider: if two crates enable two providers, rustls'
//! default panics.

mod chain;
mod client;
mod client_keys;
mod files;
mod issued;
mod peer;
mod reload;
mod server;
mod validity;

pub use chain::{Usage, check_chain};
pub use client::{ClientTls, ClientTlsPaths};
pub use files::{TlsError, check_agent_names, check_pem};
pub use issued::{IssuedTls, IssuedTlsError};
pub use peer::{VmIdentity, peer_names};
pub use server::{ServerTlsPaths, TlsAcceptor};
pub use validity::Validity;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The DNS name in every agent's certificate; unlike addresses it never changes.
pub const AGENT_DNS_NAME: &str = "agent.virtfleet.internal";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
