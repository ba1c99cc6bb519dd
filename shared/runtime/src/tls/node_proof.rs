//! Signs and verifies node proofs: the kubelet's key vouches for the agent's key.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_supported_type,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, SignatureVerificationAlgorithm, TrustAnchor,
        UnixTime, pem::PemObject as _,
    },
};
use virtfleet_wire::node_proof::{NodeProof, NodeProofScheme, node_proof_statement};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert, ring};

use crate::digest::Sha256;

/// Maximum certificates in a proof.
const MAX_CHAIN: usize = 4;

/// The schemes, in the order in which a signer prefers them.
const SCHEMES: [(NodeProofScheme, SignatureScheme); 4] = [
    (
        NodeProofScheme::EcdsaSecp256r1Sha256,
        SignatureScheme::ECDSA_NISTP256_SHA256,
    ),
    (
        NodeProofScheme::EcdsaSecp384r1Sha384,
        SignatureScheme::ECDSA_NISTP384_SHA384,
    ),
    (NodeProofScheme::Ed25519, SignatureScheme::ED25519),
    (NodeProofScheme::RsaPssRsaeSha256, SignatureScheme::RSA_PSS_SHA256),
];

/// SHA-256 of a private key's public key (SubjectPublicKeyInfo in DER); none if `pkcs8` (PKCS #8 in
/// DER) cannot be used.
pub fn public_key_sha256(pkcs8: &[u8]) -> Option<[u8; 32]> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pkcs8));
    let key = any_supported_type(&key).ok()?;
    let mut digest = Sha256::default();
    digest.update(&key.public_key()?);
    Some(digest.bytes())
}

/// Why no proof can be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignNodeProofError {
    #[error("it holds no certificate")]
    NoCertificate,
    #[error("it holds no private key: {0}")]
    NoKey(rustls::pki_types::pem::Error),
    #[error("its private key cannot be used: {0}")]
    Key(#[from] rustls::Error),
    /// None of the schemes of a proof fits the key.
    #[error("its private key is of an unsupported kind")]
    UnsupportedKey,
}

/// Signs a proof with a kubelet's file: certificate, chain and private key in PEM
/// (`kubelet-client-current.pem`). `key_sha256` is the SHA-256 of the agent's key.
///
/// # Errors
/// The file cannot be used.
pub fn sign_node_proof(pem: &[u8], key_sha256: &[u8; 32]) -> Result<NodeProof, SignNodeProofError> {
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    let chain: Vec<String> = certificates
        .take(MAX_CHAIN)
        .map(|one| STANDARD.encode(one))
        .collect();
    if chain.is_empty() {
        return Err(SignNodeProofError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(SignNodeProofError::NoKey)?;
    let key = any_supported_type(&key)?;
    let signer = key
        .choose_scheme(&SCHEMES.map(|(_, scheme)| scheme))
        .ok_or(SignNodeProofError::UnsupportedKey)?;
    let chosen = signer.scheme();
    let (scheme, _) = SCHEMES
        .into_iter()
        .find(|(_, one)| *one == chosen)
        .ok_or(SignNodeProofError::UnsupportedKey)?;
    Ok(NodeProof {
        chain,
        scheme,
        signature: STANDARD.encode(signer.sign(&node_proof_statement(key_sha256))?),
    })
}

/// Why a proof is not accepted. Displays as the end of a sentence that begins with "the node
/// proof".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeProofError {
    #[error("has certificates that cannot be read: {0}")]
    Certificate(String),
    /// The certificate is not a valid client certificate of one of the authorities.
    #[error("has a certificate that the authorities of its cluster reject: {0}")]
    Untrusted(String),
    #[error("is signed for another key, or by another one than its certificate's")]
    Signature,
}

/// Verifies a proof for the agent's key at a time in seconds since 1970; returns the kubelet's
/// certificate in DER. `authorities` are those of the user cluster's client certificates, in PEM.
///
/// # Errors
/// Why the proof is not accepted.
pub fn verify_node_proof(
    proof: &NodeProof,
    authorities: &[u8],
    key_sha256: &[u8; 32],
    seconds: u64,
) -> Result<CertificateDer<'static>, NodeProofError> {
    let mut chain = proof.chain.iter().take(MAX_CHAIN).map(|text| {
        let der = STANDARD.decode(text);
        der.map(CertificateDer::from)
            .map_err(|error| NodeProofError::Certificate(error.to_string()))
    });
    let first = chain
        .next()
        .ok_or_else(|| NodeProofError::Certificate("there is none".to_owned()))??;
    let issuers = chain.collect::<Result<Vec<_>, _>>()?;
    let authorities = CertificateDer::pem_slice_iter(authorities)
        .filter_map(Result::ok)
        .collect::<Vec<_>>();
    let anchors: Vec<TrustAnchor<'_>> = authorities
        .iter()
        .filter_map(|one| anchor_from_trusted_cert(one).ok())
        .collect();
    let certificate =
        EndEntityCert::try_from(&first).map_err(|error| NodeProofError::Certificate(error.to_string()))?;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let usage = KeyUsage::client_auth();
    certificate
        .verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &issuers, time, usage, None, None)
        .map_err(|error| NodeProofError::Untrusted(error.to_string()))?;
    let signature = STANDARD
        .decode(&proof.signature)
        .map_err(|_| NodeProofError::Signature)?;
    let statement = node_proof_statement(key_sha256);
    certificate
        .verify_signature(algorithm(proof.scheme), &statement, &signature)
        .map_err(|_| NodeProofError::Signature)?;
    Ok(first)
}

fn algorithm(scheme: NodeProofScheme) -> &'static dyn SignatureVerificationAlgorithm {
    match scheme {
        NodeProofScheme::EcdsaSecp256r1Sha256 => ring::ECDSA_P256_SHA256,
        NodeProofScheme::EcdsaSecp384r1Sha384 => ring::ECDSA_P384_SHA384,
        NodeProofScheme::RsaPssRsaeSha256 => ring::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        NodeProofScheme::Ed25519 => ring::ED25519,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm,
    };

    use super::*;

    /// 2026-06-01, in seconds since 1970.
    const NOW: u64 = 1_780_272_000;
    const KEY: [u8; 32] = [7; 32];

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// A kubelet's file.
    fn kubelet(
        issuer: &CertifiedIssuer<'static, KeyPair>,
        algorithm: &'static SignatureAlgorithm,
        usage: ExtendedKeyUsagePurpose,
    ) -> String {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "system:node:a");
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        certificate.pem() + &key.serialize_pem()
    }

    fn client(issuer: &CertifiedIssuer<'static, KeyPair>) -> String {
        kubelet(
            issuer,
            &PKCS_ECDSA_P256_SHA256,
            ExtendedKeyUsagePurpose::ClientAuth,
        )
    }

    #[test]
    fn each_kind_of_key_signs_and_verifies() {
        let authority = authority();
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
            let file = kubelet(&authority, algorithm, ExtendedKeyUsagePurpose::ClientAuth);
            let proof = sign_node_proof(file.as_bytes(), &KEY).unwrap();
            let verified = verify_node_proof(&proof, authority.pem().as_bytes(), &KEY, NOW).unwrap();
            assert_eq!(verified, CertificateDer::from_pem_slice(file.as_bytes()).unwrap());
        }
    }

    #[test]
    fn a_proof_fits_one_key_one_certificate_and_one_authority() {
        let authority = authority();
        let other = self::authority();
        let check = |proof: &NodeProof, authority: &CertifiedIssuer<'static, KeyPair>, key: &[u8; 32], at| {
            verify_node_proof(proof, authority.pem().as_bytes(), key, at).unwrap_err()
        };
        let proof = sign_node_proof(client(&authority).as_bytes(), &KEY).unwrap();
        assert_eq!(
            check(&proof, &authority, &[8; 32], NOW),
            NodeProofError::Signature
        );
        assert!(matches!(
            check(&proof, &other, &KEY, NOW),
            NodeProofError::Untrusted(_)
        ));
        // rcgen's default validity ends in the year 4096.
        assert!(matches!(
            check(&proof, &authority, &KEY, 100_000_000_000),
            NodeProofError::Untrusted(_)
        ));
        let second = sign_node_proof(client(&authority).as_bytes(), &KEY).unwrap();
        let swapped = NodeProof {
            signature: second.signature,
            ..proof.clone()
        };
        assert_eq!(check(&swapped, &authority, &KEY, NOW), NodeProofError::Signature);
        for broken in ["", "%", "AAAA"] {
            let broken = NodeProof {
                signature: broken.to_owned(),
                ..proof.clone()
            };
            assert_eq!(check(&broken, &authority, &KEY, NOW), NodeProofError::Signature);
        }
        let empty = NodeProof {
            chain: Vec::new(),
            ..proof
        };
        assert!(matches!(
            check(&empty, &authority, &KEY, NOW),
            NodeProofError::Certificate(_)
        ));
    }

    #[test]
    fn a_serving_certificate_of_a_kubelet_is_not_accepted() {
        let authority = authority();
        let serving = kubelet(
            &authority,
            &PKCS_ECDSA_P256_SHA256,
            ExtendedKeyUsagePurpose::ServerAuth,
        );
        let proof = sign_node_proof(serving.as_bytes(), &KEY).unwrap();
        let error = verify_node_proof(&proof, authority.pem().as_bytes(), &KEY, NOW).unwrap_err();
        assert!(matches!(error, NodeProofError::Untrusted(_)), "{error}");
    }

    #[test]
    fn a_file_without_certificate_or_key_is_refused() {
        let authority = authority();
        let file = client(&authority);
        let (certificate, key) = file.split_once("-----BEGIN PRIVATE").unwrap();
        let key = format!("-----BEGIN PRIVATE{key}");
        assert!(matches!(
            sign_node_proof(key.as_bytes(), &KEY),
            Err(SignNodeProofError::NoCertificate)
        ));
        assert!(matches!(
            sign_node_proof(certificate.as_bytes(), &KEY),
            Err(SignNodeProofError::NoKey(_))
        ));
    }
}
