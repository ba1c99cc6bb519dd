//! TLS 1.3 with certificates on both sides. They come from PEM files, which are reloaded when they
//! change; an agent that is enrolled holds its certificate in memory.
//!
//! Every configuration names ring as its provider: if two crates enable two providers, rustls'
//! default panics.

mod agent_certificate;
mod any_certificate;
mod chain;
mod client;
mod client_keys;
mod clients;
mod deferred;
mod files;
mod identity;
mod issued;
mod node_proof;
mod peer;
mod reload;
mod server;
mod validity;

pub use agent_certificate::{UnfitCertificate, check_issued};
pub use any_certificate::AnyCertificate;
pub use chain::{Usage, check_chain};
pub use client::{AuthoritiesId, ClientTls, ClientTlsPaths};
pub use clients::{ClientRule, is_collector};
pub use deferred::DeferredTls;
pub use files::{TlsError, check_agent_names, check_pem};
pub use identity::{CertificateChain, ClientAuthorities, HeldIdentity, IdentityError, ServerIdentity};
pub use issued::{IssuedTls, IssuedTlsError};
pub use node_proof::{
    NodeProofError, SignNodeProofError, public_key_sha256, sign_node_proof, verify_node_proof,
};
pub use peer::{VmIdentity, peer_names};
pub use server::{HeldTls, ServerTlsPaths, TlsAcceptor};
pub use validity::Validity;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The DNS name in every agent's certificate; unlike addresses it never changes.
pub const AGENT_DNS_NAME: &str = "agent.virtfleet.internal";

/// The protocol (ALPN, RFC 7301) of a connection that the agent opened. It is HTTP/1.1, as on a
/// connection that a collector opened; the name of its own keeps a neighbour from joining a port of
/// the agent to the collector's port for agents.
pub const PUSH_PROTOCOL: &[u8] = b"virtfleet-push/1";

/// The protocol of all other connections.
const HTTP_PROTOCOL: &[u8] = b"http/1.1";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
