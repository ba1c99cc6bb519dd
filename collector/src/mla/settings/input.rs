//! What the settings of streams are made of: specs, and the data of Secrets and files.

use std::{collections::BTreeMap, fmt};

use zeroize::Zeroizing;

use crate::objects::{InfraSecretKey, InfraSecretRef, MlaSpec};

/// Values of the keys of one Secret. `Debug` shows only the keys.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretValues(BTreeMap<String, Zeroizing<Vec<u8>>>);

impl SecretValues {
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(|value| value.as_slice())
    }

    /// All keys with their values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_slice()))
    }
}

impl FromIterator<(String, Vec<u8>)> for SecretValues {
    fn from_iter<T: IntoIterator<Item = (String, Vec<u8>)>>(values: T) -> Self {
        let values = values.into_iter();
        Self(values.map(|(key, value)| (key, Zeroizing::new(value))).collect())
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretLookup {
    /// It has not been read yet.
    Waiting,
    /// It does not exist.
    Absent,
    /// It cannot be read; the text says why, and what to do.
    Failed(String),
    Found(SecretValues),
}

/// What is known of the settings of a user cluster's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantMla {
    /// `spec.mla`, or why it cannot be read.
    pub spec: Result<MlaSpec, String>,
    pub secrets: BTreeMap<InfraSecretRef, SecretLookup>,
}

impl MlaSpec {
    pub fn secrets(&self) -> Vec<InfraSecretRef> {
        let remote_write = &self.remote_write;
        let mut found: Vec<_> = remote_write
            .tls
            .iter()
            .filter_map(|tls| tls.secret.clone())
            .collect();
        let headers = remote_write
            .headers
            .iter()
            .filter_map(|header| header.secret.as_ref());
        found.extend(headers.map(InfraSecretKey::secret));
        if let Some(auth) = &remote_write.auth {
            found.extend(auth.basic.iter().map(|basic| basic.secret.clone()));
            found.extend(auth.bearer.iter().map(|bearer| bearer.secret.secret()));
        }
        found.sort();
        found.dedup();
        found
    }
}
