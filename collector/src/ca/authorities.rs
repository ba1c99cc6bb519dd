//! The fleet's authority as a value.

use rcgen::ExtendedKeyUsagePurpose;
use virtfleet_runtime::tls::{AGENT_DNS_NAME, Validity, VmIdentity};

use super::{
    CaError, CsrKey, Root, RootKind, Serial, UnixSeconds,
    deny::DenyList,
    root_set::RootSet,
    template::{self, CLOCK_TOLERANCE, MAX_CROSS_SIGNED},
};

/// A root is trusted for so many seconds longer than the certificates that it signed live.
const RETIREMENT_MARGIN: u64 = 86_400;

/// Roots and keys of the fleet, and the denied serial numbers. A change makes a new value.
#[derive(Debug, Clone)]
pub struct Authorities {
    pub(super) agents: RootSet,
    pub(super) clients: RootSet,
    /// The clients root that signs, as signed by the previous one, and so on: with it, agents that
    /// trust only an older root accept collectors. May be empty.
    pub(super) chain: Vec<Root>,
    pub(super) deny: DenyList,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCertificate {
    /// The certificate, then its chain without the root, in PEM.
    pub chain_pem: String,
    pub serial: Serial,
    /// Its validity, which the root's may have shortened.
    pub validity: Validity,
}

impl Authorities {
    /// New roots for agents and for clients.
    ///
    /// # Errors
    /// The text is not a trust domain, or there are no random numbers.
    pub fn create(trust_domain: &str, now: UnixSeconds) -> Result<Self, CaError> {
        if !is_trust_domain(trust_domain) {
            return Err(CaError::TrustDomain(trust_domain.chars().take(300).collect()));
        }
        Ok(Self {
            agents: RootSet::create(RootKind::Agents, trust_domain, now)?,
            clients: RootSet::create(RootKind::Clients, trust_domain, now)?,
            chain: Vec::new(),
            deny: DenyList::default(),
        })
    }

    /// Roots of agents in PEM, the one that signs first.
    pub fn agent_roots_pem(&self) -> String {
        self.agents.bundle()
    }

    /// Roots of clients in PEM, the one that signs first: the text for user-data.
    pub fn client_roots_pem(&self) -> String {
        self.clients.bundle()
    }

    /// All trusted roots of a kind, the one that signs first.
    pub fn roots(&self, kind: RootKind) -> &[Root] {
        &self.set(kind).roots
    }

    /// The cross-signed certificates that collectors send, newest first.
    pub fn client_chain(&self) -> &[Root] {
        &self.chain
    }

    /// What manages the roots of a kind, if not this program.
    pub fn owner(&self, kind: RootKind) -> Option<&str> {
        self.set(kind).owner.as_deref()
    }

    /// Signs the certificate of an agent, for its server and as a client.
    ///
    /// # Errors
    /// The identity is of another trust domain, or the root is not valid then.
    pub fn sign_agent(
        &self,
        key: &CsrKey,
        identity: &VmIdentity,
        validity: Validity,
    ) -> Result<SignedCertificate, CaError> {
        let uri = identity.to_uri();
        // A UID may contain characters that make it another identity.
        if VmIdentity::from_uri(&uri).as_ref() != Some(identity) {
            return Err(CaError::Name(uri));
        }
        let usages = [
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        sign(
            &self.agents,
            key,
            (&uri, &[AGENT_DNS_NAME.to_owned()]),
            validity,
            &usages,
        )
    }

    /// Signs the certificate of a client of agents. The chain includes the cross-signed
    /// certificates.
    ///
    /// # Errors
    /// The URI is of another trust domain, a name cannot be written, or the root is not valid then.
    pub fn sign_client(
        &self,
        key: &CsrKey,
        uri: &str,
        dns: &[String],
        validity: Validity,
    ) -> Result<SignedCertificate, CaError> {
        self.sign_for_collector(key, (uri, dns), validity, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Signs the certificate of the collector's API. The chain includes the cross-signed
    /// certificates.
    ///
    /// # Errors
    /// As [`Authorities::sign_client`].
    pub fn sign_api(
        &self,
        key: &CsrKey,
        uri: &str,
        dns: &[String],
        validity: Validity,
    ) -> Result<SignedCertificate, CaError> {
        self.sign_for_collector(key, (uri, dns), validity, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn sign_for_collector(
        &self,
        key: &CsrKey,
        names: (&str, &[String]),
        validity: Validity,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<SignedCertificate, CaError> {
        let mut signed = sign(&self.clients, key, names, validity, &[usage])?;
        signed
            .chain_pem
            .extend(self.chain.iter().map(|one| one.pem.as_str()));
        Ok(signed)
    }

    /// Whether a serial number is denied.
    pub fn denies(&self, serial: &Serial) -> bool {
        self.deny.contains(serial)
    }

    pub fn deny(&mut self, serial: Serial) {
        self.deny.insert(serial);
    }

    /// Number of denied serial numbers.
    pub fn denied(&self) -> usize {
        self.deny.len()
    }

    /// Adds a new root that signs from now on. The previous roots stay trusted, without their keys.
    ///
    /// # Errors
    /// The roots are managed elsewhere, or too many are trusted already.
    pub fn rotate(&self, root: RootKind, now: UnixSeconds) -> Result<Self, CaError> {
        let mut rotated = self.clone();
        match root {
            RootKind::Agents => (rotated.agents, _) = self.agents.rotate(now)?,
            RootKind::Clients => {
                if self.chain.len() >= usize::from(MAX_CROSS_SIGNED) {
                    return Err(CaError::ChainTooLong {
                        count: self.chain.len(),
                    });
                }
                let crossed;
                (rotated.clients, crossed) = self.clients.rotate(now)?;
                match crossed {
                    Some(crossed) => rotated.chain.insert(0, crossed),
                    // No agent accepts the previous root any more.
                    None => rotated.chain.clear(),
                }
            }
        }
        Ok(rotated)
    }

    /// Removes the oldest cross-signed certificate: VMs whose user-data has only the oldest root of
    /// clients no longer accept collectors.
    #[must_use]
    pub fn without_oldest_link(&self) -> Self {
        let mut shortened = self.clone();
        shortened.chain.pop();
        shortened
    }

    /// Stops trusting all roots of a kind except the one that signs. Agents that know only an older
    /// root of clients, by their user-data, still accept collectors.
    #[must_use]
    pub fn without_previous(&self, root: RootKind) -> Self {
        let mut trimmed = self.clone();
        match root {
            RootKind::Agents => trimmed.agents.roots.truncate(1),
            RootKind::Clients => trimmed.clients.roots.truncate(1),
        }
        trimmed
    }

    /// Removes roots that are no longer needed, `lifetime` seconds being that of certificates, and
    /// links of the chain that have expired. None: there are none.
    #[must_use]
    pub fn pruned(&self, lifetime: u64, now: UnixSeconds) -> Option<Self> {
        let mut pruned = self.clone();
        for set in [&mut pruned.agents, &mut pruned.clients] {
            let retired = set
                .roots
                .windows(2)
                .position(|pair| now > trusted_until(&pair[0], &pair[1], lifetime));
            if let (Some(index), None) = (retired, &set.owner) {
                set.roots.truncate(index + 1);
            }
        }
        if let Some(expired) = self.chain.iter().position(|link| link.validity.not_after < now) {
            pruned.chain.truncate(expired);
        }
        let size = |one: &Self| (one.agents.roots.len(), one.clients.roots.len(), one.chain.len());
        (size(&pruned) != size(self)).then_some(pruned)
    }

    /// Whether `other` has the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_same = |kind| self.roots(kind) == other.roots(kind) && self.owner(kind) == other.owner(kind);
        RootKind::ALL.into_iter().all(is_same) && self.chain == other.chain && self.deny == other.deny
    }

    fn set(&self, kind: RootKind) -> &RootSet {
        match kind {
            RootKind::Agents => &self.agents,
            RootKind::Clients => &self.clients,
        }
    }
}

/// Until when a replaced root is needed: until the certificates that it signed have expired.
pub(super) fn trusted_until(successor: &Root, replaced: &Root, lifetime: u64) -> UnixSeconds {
    let created = successor.validity.not_before.saturating_add(CLOCK_TOLERANCE);
    let drained = created.saturating_add(lifetime).saturating_add(RETIREMENT_MARGIN);
    drained.min(replaced.validity.not_after)
}

fn sign(
    set: &RootSet,
    key: &CsrKey,
    (uri, dns): (&str, &[String]),
    validity: Validity,
    usages: &[ExtendedKeyUsagePurpose],
) -> Result<SignedCertificate, CaError> {
    if let Some(trust_domain) = &set.signer().trust_domain
        && !uri
            .strip_prefix("spiffe://")
            .and_then(|rest| rest.strip_prefix(trust_domain.as_str()))
            .is_some_and(|path| path.starts_with('/'))
    {
        return Err(CaError::OtherTrustDomain {
            identity: uri.to_owned(),
            trust_domain: trust_domain.clone(),
        });
    }
    let (serial, validity) = (Serial::random()?, set.limit(validity)?);
    let params = template::leaf(&serial, validity, uri, dns, usages)?;
    Ok(SignedCertificate {
        chain_pem: set.sign(&params, &key.public)?,
        serial,
        validity,
    })
}

/// SPIFFE-ID, 2.1.
pub(crate) fn is_trust_domain(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(is_allowed)
}
