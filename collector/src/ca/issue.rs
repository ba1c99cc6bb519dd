//! Certificates of the collector itself: each has a key that is made for it and stored nowhere.

use rcgen::KeyPair;
use virtfleet_runtime::tls::Validity;
use zeroize::{Zeroize, Zeroizing};

use super::{CaError, CsrKey, SignedCertificate, UnixSeconds, template::CLOCK_TOLERANCE};

/// Makes a key, and has `sign` certify it for `lifetime` seconds; returns the certificate, and the
/// key as `encode` writes it.
///
/// # Errors
/// There are no random numbers, or `sign` fails.
pub(super) fn with_new_key<K: Zeroize>(
    lifetime: u64,
    now: UnixSeconds,
    encode: impl FnOnce(&KeyPair) -> K,
    sign: impl FnOnce(&CsrKey, Validity) -> Result<SignedCertificate, CaError>,
) -> Result<(SignedCertificate, Zeroizing<K>), CaError> {
    let mut pair = KeyPair::generate()?;
    let public = CsrKey::of(&pair);
    let key = Zeroizing::new(encode(&pair));
    pair.zeroize();
    let validity = Validity {
        // Clocks of guests and of clients differ.
        not_before: now.saturating_sub(CLOCK_TOLERANCE),
        not_after: now.saturating_add(lifetime),
    };
    let signed = sign(&public?, validity)?;
    Ok((signed, key))
}
