//! Text form of the authority: the data of a Secret, or the files of a folder.

use std::collections::BTreeMap;

use super::{
    Authorities, CaError, Root, RootKind, UnixSeconds,
    authorities::is_trust_domain,
    deny::DenyList,
    root_set::{RootSet, parse_certificates},
};

/// Cross-signed certificates of the clients root that signs.
const CHAIN_FILE: &str = "clients-chain.crt";
/// Denied serial numbers.
const DENY_FILE: &str = "deny";

/// Name of the bundle of a kind, and of the key of its first certificate.
fn file_names(kind: RootKind) -> [String; 2] {
    [format!("{kind}.crt"), format!("{kind}.key")]
}

/// A root that another program manages: the data of a Secret of the type `kubernetes.io/tls`, as
/// cert-manager writes it.
#[derive(Debug, Clone)]
pub struct ExternalRoot {
    /// What it signs.
    pub kind: RootKind,
    /// What manages it, for messages: `the Secret virtfleet/agents-ca`.
    pub owner: String,
    /// `tls.crt` and `tls.key`.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Authorities {
    /// Parses the data of a Secret or the files of a folder, by name. Other names are ignored.
    ///
    /// # Errors
    /// The file, the line and the problem.
    pub fn parse(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, CaError> {
        let agents = parse_set(files, RootKind::Agents)?;
        let clients = parse_set(files, RootKind::Clients)?;
        Self::of(agents, clients, files)
    }

    /// As [`Authorities::parse`], with `external` roots in place of own ones, and with a new root
    /// of each kind that has neither. The second value: whether there is a new root, which must be
    /// stored.
    ///
    /// # Errors
    /// The file, the line and the problem, or another trust domain.
    pub fn assemble(
        files: &BTreeMap<String, Vec<u8>>,
        external: &[ExternalRoot],
        trust_domain: &str,
        now: UnixSeconds,
    ) -> Result<(Self, bool), CaError> {
        if !is_trust_domain(trust_domain) {
            return Err(CaError::TrustDomain(trust_domain.chars().take(300).collect()));
        }
        let mut created = false;
        let mut set = |kind: RootKind| {
            let set = match external.iter().find(|root| root.kind == kind) {
                Some(root) => parse_external(root)?,
                None if file_names(kind).iter().any(|name| files.contains_key(name)) => {
                    parse_set(files, kind)?
                }
                None => {
                    created = true;
                    RootSet::create(kind, trust_domain, now)?
                }
            };
            match &set.signer().trust_domain {
                Some(stored) if stored != trust_domain => Err(CaError::StoredTrustDomain {
                    root: kind,
                    stored: stored.clone(),
                    setting: trust_domain.to_owned(),
                }),
                _ => Ok(set),
            }
        };
        let (agents, clients) = (set(RootKind::Agents)?, set(RootKind::Clients)?);
        Ok((Self::of(agents, clients, files)?, created))
    }

    /// The data of the Secret or the files of the folder. Contains the private keys, but not those
    /// of external roots.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for set in [&self.agents, &self.clients] {
            if set.owner.is_none() {
                let [bundle, key] = file_names(set.kind);
                files.insert(bundle, set.bundle().into_bytes());
                files.insert(key, set.key.text().as_bytes().to_vec());
            }
        }
        if self.clients.owner.is_none() {
            let chain: String = self.chain.iter().map(|link| link.pem.as_str()).collect();
            files.insert(CHAIN_FILE.to_owned(), chain.into_bytes());
        }
        files.insert(DENY_FILE.to_owned(), self.deny.text().into_bytes());
        files
    }

    fn of(agents: RootSet, clients: RootSet, files: &BTreeMap<String, Vec<u8>>) -> Result<Self, CaError> {
        let chain = match clients.owner {
            // Left from a root that this program managed.
            Some(_) => Vec::new(),
            None => parse_chain(files, clients.signer())?,
        };
        Ok(Self {
            agents,
            clients,
            chain,
            deny: parse_deny(files)?,
        })
    }
}

fn parse_external(root: &ExternalRoot) -> Result<RootSet, CaError> {
    let names = ["tls.crt", "tls.key"].map(|name| format!("{}: {name}", root.owner));
    let get = |at: usize, name: &str| {
        root.files.get(name).ok_or_else(|| CaError::MissingExternal {
            file: names[at].clone(),
        })
    };
    let (certificate, key) = (get(0, "tls.crt")?, get(1, "tls.key")?);
    RootSet::parse(
        root.kind,
        (&names[0], certificate),
        (&names[1], key),
        Some(root.owner.clone()),
    )
}

fn parse_set(files: &BTreeMap<String, Vec<u8>>, kind: RootKind) -> Result<RootSet, CaError> {
    let [bundle, key] = file_names(kind);
    let get = |name: &String| {
        files
            .get(name)
            .ok_or_else(|| CaError::Missing { file: name.clone() })
    };
    let contents = (get(&bundle)?, get(&key)?);
    RootSet::parse(kind, (&bundle, contents.0), (&key, contents.1), None)
}

fn parse_chain(files: &BTreeMap<String, Vec<u8>>, signer: &Root) -> Result<Vec<Root>, CaError> {
    let bytes = files.get(CHAIN_FILE).map(Vec::as_slice).unwrap_or_default();
    let chain = parse_certificates(CHAIN_FILE, bytes)?;
    let invalid = |reason: &str| CaError::Invalid {
        file: CHAIN_FILE.to_owned(),
        line: 1,
        reason: reason.to_owned(),
    };
    if chain
        .first()
        .is_some_and(|first| first.public_key_info != signer.public_key_info)
    {
        return Err(invalid(
            "the first certificate is not for the key that signs clients",
        ));
    }
    if chain.windows(2).any(|pair| !pair[0].is_signed_by(&pair[1])) {
        return Err(invalid("each certificate must be signed by the next one"));
    }
    Ok(chain)
}

fn parse_deny(files: &BTreeMap<String, Vec<u8>>) -> Result<DenyList, CaError> {
    let bytes = files.get(DENY_FILE).map(Vec::as_slice).unwrap_or_default();
    DenyList::parse(DENY_FILE, bytes)
}
