//! Where the authority is kept, and how it is created, changed and followed.
//!
//! ```text
//! Secret │ folder ─ read ─▶ Authorities ─ follow ─▶ watch::Receiver (signing, verification, API)
//!    ▲                                               
//!    └─ create if absent │ update (read, change, write if unchanged, else again)
//! ```

mod error;
mod folder;
mod follow;
mod secret;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::api::core::v1::Secret;

pub use self::{error::CaStoreError, secret::SecretClients};
use self::{folder::FolderStore, secret::SecretStore};
use super::{Authorities, CaError, ExternalRoot, RootKind, UnixSeconds};

/// Maximum attempts of a change that other writers interrupt.
const MAX_WRITE_ATTEMPTS: u32 = 10;

/// Where the authority is kept. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CaStore {
    place: CaPlace,
    /// Secrets of roots that others manage.
    external: Vec<(RootKind, SecretStore)>,
    trust_domain: String,
}

#[derive(Debug, Clone)]
enum CaPlace {
    Folder(FolderStore),
    Secret(Box<SecretStore>),
}

/// The files as read, with what is needed to replace them.
#[derive(Debug)]
struct StoredFiles {
    files: BTreeMap<String, Vec<u8>>,
    /// The Secret, if it exists.
    secret: Option<Secret>,
}

impl CaStore {
    /// In a folder with mode 0700, which belongs to one collector.
    pub fn folder(folder: PathBuf, trust_domain: &str) -> Self {
        Self {
            place: CaPlace::Folder(FolderStore::new(folder)),
            external: Vec::new(),
            trust_domain: trust_domain.to_owned(),
        }
    }

    /// In the Secret `name`. `external` names Secrets in the same namespace, with roots that others
    /// manage.
    pub fn secret(
        clients: &SecretClients,
        namespace: &str,
        name: &str,
        external: &[(RootKind, String)],
        trust_domain: &str,
    ) -> Self {
        let store = |name: &str| SecretStore::new(clients.clone(), namespace, name);
        Self {
            place: CaPlace::Secret(Box::new(store(name))),
            external: external.iter().map(|(kind, name)| (*kind, store(name))).collect(),
            trust_domain: trust_domain.to_owned(),
        }
    }

    /// The place, for messages: `/var/lib/virtfleet-collector`, `the Secret
    /// virtfleet/virtfleet-ca`.
    pub fn name(&self) -> String {
        match &self.place {
            CaPlace::Folder(folder) => folder.name(),
            CaPlace::Secret(secret) => secret.name(),
        }
    }

    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// Reads the authority; creates what is absent. Of two collectors that create at the same time,
    /// one reads what the other created.
    ///
    /// # Errors
    /// It cannot be read or created, or another collector uses the folder.
    pub async fn load_or_create(&self, now: UnixSeconds) -> Result<Authorities, CaStoreError> {
        if let CaPlace::Folder(folder) = &self.place {
            folder.lock()?;
        }
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let stored = self.read_files().await?;
            let (authorities, is_new) = self.assemble(&stored.files, now).await?;
            if !is_new {
                return Ok(authorities);
            }
            if self.write_files(stored, authorities.files()).await? {
                tracing::info!(place = self.name(), "created the authority of the fleet");
                return Ok(authorities);
            }
        }
        Err(CaStoreError::Busy { place: self.name() })
    }

    /// Reads the authority.
    ///
    /// # Errors
    /// It is absent or cannot be read.
    pub async fn read(&self, now: UnixSeconds) -> Result<Authorities, CaStoreError> {
        let stored = self.read_files().await?;
        self.assemble_existing(&stored.files, now).await
    }

    /// Changes the authority; returns it as written. If another writer was faster, `change` is
    /// applied again to what that one wrote.
    ///
    /// # Errors
    /// The error of `change`; the authority is absent, or cannot be read or written.
    pub async fn update(
        &self,
        now: UnixSeconds,
        mut change: impl FnMut(&Authorities) -> Result<Authorities, CaError> + Send,
    ) -> Result<Authorities, CaStoreError> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let stored = self.read_files().await?;
            let before = self.assemble_existing(&stored.files, now).await?;
            let invalid = |source| CaStoreError::Authority {
                place: self.name(),
                source,
            };
            let after = change(&before).map_err(invalid)?;
            let files = after.files();
            // What cannot be read again must not be written.
            self.assemble(&files, now).await?;
            if self.write_files(stored, files).await? {
                return Ok(after);
            }
        }
        Err(CaStoreError::Busy { place: self.name() })
    }

    async fn read_files(&self) -> Result<StoredFiles, CaStoreError> {
        match &self.place {
            CaPlace::Folder(folder) => Ok(StoredFiles {
                files: folder.read().await?,
                secret: None,
            }),
            CaPlace::Secret(store) => {
                let secret = store.read().await?;
                let files = secret.as_ref().map(secret::data).unwrap_or_default();
                Ok(StoredFiles { files, secret })
            }
        }
    }

    /// Returns false if another writer was faster.
    async fn write_files(
        &self,
        stored: StoredFiles,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<bool, CaStoreError> {
        match &self.place {
            CaPlace::Folder(folder) => folder.write(files).await.map(|()| true),
            CaPlace::Secret(store) => store.write(stored.secret, files).await,
        }
    }

    async fn assemble(
        &self,
        files: &BTreeMap<String, Vec<u8>>,
        now: UnixSeconds,
    ) -> Result<(Authorities, bool), CaStoreError> {
        let mut external = Vec::new();
        for (kind, store) in &self.external {
            let secret = store.read().await?.ok_or_else(|| CaStoreError::NoExternal {
                place: store.name(),
                kind: *kind,
            })?;
            external.push(ExternalRoot {
                kind: *kind,
                owner: store.name(),
                files: secret::data(&secret),
            });
        }
        Authorities::assemble(files, &external, &self.trust_domain, now).map_err(|source| {
            CaStoreError::Authority {
                place: self.name(),
                source,
            }
        })
    }

    async fn assemble_existing(
        &self,
        files: &BTreeMap<String, Vec<u8>>,
        now: UnixSeconds,
    ) -> Result<Authorities, CaStoreError> {
        match self.assemble(files, now).await? {
            (authorities, false) => Ok(authorities),
            (_, true) => Err(CaStoreError::Absent { place: self.name() }),
        }
    }
}
