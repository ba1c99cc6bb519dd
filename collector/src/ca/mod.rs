//! The fleet's certificate authority: signs the certificates of agents and of clients.
//!
//! ```text
//! Secret or folder ─▶ Authorities (a value: roots, keys, deny list) ─▶ sign_agent, sign_client
//!                        ▲                                              ▲
//!                        └── create, rotate, deny                      Csr
//! ```
//! `docs/decisions/0029-enrolment.md` has the protocol.

mod api_certificate;
mod authorities;
mod csr;
mod deny;
mod error;
mod files;
mod findings;
mod issue;
mod metrics;
mod own_certificate;
mod pem;
mod root;
mod root_key;
mod root_kind;
mod root_set;
mod rotation;
mod serial;
mod service;
mod status;
mod store;
mod template;
#[cfg(test)]
mod tests;

pub(crate) use authorities::is_trust_domain;
pub use authorities::{Authorities, SignedCertificate};
pub use csr::{Csr, CsrError, CsrKey, read_csr};
pub use error::CaError;
pub use files::ExternalRoot;
pub use metrics::CaMetrics;
pub use root::Root;
pub use root_kind::RootKind;
pub(crate) use root_set::parse_certificates as parse_authorities;
pub use rotation::Rotation;
pub use serial::{InvalidSerial, Serial};
pub(crate) use service::now as unix_seconds;
pub use service::{CaChangeError, CaService, LoadedCa, store as settings_store};
pub use status::{CaRootView, CaStatus, RootRole};
pub use store::{CaStore, CaStoreError, SecretClients};

/// Seconds since 1970.
pub type UnixSeconds = u64;
