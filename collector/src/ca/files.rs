//! Text form of the authority: the data of a Secret, or the files of a folder.

use std::collections::BTreeMap;

use super::{
    Authorities, CaError, Root, RootKind,
    deny::DenyList,
    root_set::{RootSet, parse_certificates},
};

/// Cross-signed certificates of the clients root that signs.
const CHAIN_FILE: &str = "clients-chain.crt";
/// Denied serial numbers.
const DENY_FILE: &str = "deny";

/// Name of the bundle of a kind, and of the key of its first certificate.
fn file_names(kind: RootKind) -> (String, String) {
    (format!("{kind}.crt"), format!("{kind}.key"))
}

impl Authorities {
    /// Parses the data of a Secret or the files of a folder, by name. Other names are ignored.
    ///
    /// # Errors
    /// The file, the line and the problem.
    pub fn parse(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, CaError> {
        let clients = parse_set(files, RootKind::Clients)?;
        let chain = parse_chain(files, clients.signer())?;
        Ok(Self {
            agents: parse_set(files, RootKind::Agents)?,
            clients,
            chain,
            deny: parse_deny(files)?,
        })
    }

    /// The data of the Secret or the files of the folder. Contains the private keys.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for set in [&self.agents, &self.clients] {
            if set.owner.is_none() {
                let (bundle, key) = file_names(set.kind);
                files.insert(bundle, set.bundle().into_bytes());
                files.insert(key, set.key.text().as_bytes().to_vec());
            }
        }
        let chain: String = self.chain.iter().map(|link| link.pem.as_str()).collect();
        files.insert(CHAIN_FILE.to_owned(), chain.into_bytes());
        files.insert(DENY_FILE.to_owned(), self.deny.text().into_bytes());
        files
    }
}

fn parse_set(files: &BTreeMap<String, Vec<u8>>, kind: RootKind) -> Result<RootSet, CaError> {
    let (bundle, key) = file_names(kind);
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
