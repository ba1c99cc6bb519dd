//! TLS inside a port-forward.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use virtfleet_runtime::tls::AnyCertificate;

/// TLS towards the pod. With `roots` its certificate is verified. Without, any certificate is
/// accepted: the API server and kubelet have connected the stream to this pod, and whoever can
/// falsify that could read the token anyway.
pub(super) fn config(roots: Option<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(match roots {
        Some(roots) => builder.with_root_certificates(roots).with_no_client_auth(),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::default()))
            .with_no_client_auth(),
    })
}
