//! TLS of a receiver, from PEM.

use std::sync::{Arc, LazyLock};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use virtfleet_runtime::tls::Validity;

/// Certificates in PEM, each with its name in messages.
#[derive(Default)]
pub(super) struct Pem<'a> {
    /// Authorities of the receiver's certificate; none: those of the system.
    pub(super) authorities: Option<(&'a str, &'a [u8])>,
    /// The client certificate and its chain.
    pub(super) certificate: Option<(&'a str, &'a [u8])>,
    /// Its private key.
    pub(super) key: Option<(&'a str, &'a [u8])>,
}

/// The configuration of the client, and when its certificate ends, in seconds since 1970.
///
/// # Errors
/// What cannot be used, and why; without any part of a key.
pub(super) fn client(pem: &Pem<'_>, now: u64) -> Result<(Arc<ClientConfig>, Option<u64>), String> {
    let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(pem)?);
    let (mut config, ends) = match (pem.certificate, pem.key) {
        (None, None) => (builder.with_no_client_auth(), None),
        (Some((name, _)), None) => return Err(format!("{name} is there, but its private key is not")),
        (None, Some((name, _))) => return Err(format!("{name} is there, but its certificate is not")),
        (Some((name, certificate)), Some((key_name, key))) => {
            let chain = certificates(name, certificate)?;
            let ends = in_validity(name, certificate, now)?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| format!("{key_name} has no private key in PEM"))?;
            let config = builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| format!("{name} and {key_name} cannot be used together: {error}"))?;
            (config, Some(ends))
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(config), ends))
}

/// The authorities of the system, read once: they are part of the collector's image, and many
/// streams share them.
static SYSTEM_ROOTS: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

fn roots(pem: &Pem<'_>) -> Result<Arc<RootCertStore>, String> {
    if let Some((name, authorities)) = pem.authorities {
        let mut roots = RootCertStore::empty();
        for one in certificates(name, authorities)? {
            roots
                .add(one)
                .map_err(|error| format!("{name}: an authority cannot be used: {error}"))?;
        }
        return Ok(Arc::new(roots));
    }
    if SYSTEM_ROOTS.is_empty() {
        return Err("the collector's system has no certificate authorities; set ca.crt".to_owned());
    }
    Ok(Arc::clone(&SYSTEM_ROOTS))
}

fn certificates(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("{name} has no certificate in PEM")),
    }
}

/// When the first certificate ends. One that is not valid yet is used: clocks differ by seconds,
/// and the receiver decides.
fn in_validity(name: &str, pem: &[u8], now: u64) -> Result<u64, String> {
    let validity = Validity::of_first(pem).map_err(|why| format!("{name}: {why}"))?;
    if now > validity.not_after {
        let hours = (now - validity.not_after) / 3600;
        return Err(format!("{name}: the certificate expired {hours} h ago"));
    }
    Ok(validity.not_after)
}
