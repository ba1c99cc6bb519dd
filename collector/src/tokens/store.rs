//! Storage of tokens: a Secret of the collector's own namespace, or a file beside the authority.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams};

use crate::regular_file::{open_regular, write_private};

const SECRET: &str = "virtfleet-join-tokens";
/// Name of the file, and key in the Secret.
const FILE: &str = "join-tokens.json";
/// Maximum bytes of the JSON: a Secret may have 1 MiB in all.
const MAX_JSON_BYTES: usize = 1000 * 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub enum TokenStore {
    /// The Secret `virtfleet-join-tokens`.
    Secret(Box<Api<Secret>>),
    /// `join-tokens.json` in a folder.
    Folder(PathBuf),
}

/// What was read, to replace it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredTokens {
    /// The JSON; empty if there is none.
    pub(super) json: String,
    /// The Secret, if there is one.
    secret: Option<Box<Secret>>,
}

/// Why tokens were not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenWriteError {
    /// Another process wrote them meanwhile.
    Conflict,
    Failed(String),
}

impl fmt::Debug for TokenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl TokenStore {
    /// The Secret in this namespace. It need not exist.
    pub fn secret(client: Client, namespace: &str) -> Self {
        Self::Secret(Box::new(Api::namespaced(client, namespace)))
    }

    /// The file in this folder. It need not exist.
    pub fn folder(folder: &Path) -> Self {
        Self::Folder(folder.join(FILE))
    }

    fn name(&self) -> String {
        match self {
            Self::Secret(_) => format!("the Secret {SECRET}"),
            Self::Folder(file) => file.display().to_string(),
        }
    }

    pub(super) async fn read(&self) -> Result<StoredTokens, String> {
        let failed = |error: &dyn fmt::Display| format!("cannot read {}: {error}", self.name());
        match self {
            Self::Secret(api) => {
                let found = tokio::time::timeout(REQUEST_TIMEOUT, api.get_opt(SECRET)).await;
                let found = found
                    .map_err(|error| failed(&error))?
                    .map_err(|error| failed(&error))?;
                let json = found.as_ref().and_then(|secret| secret.data.as_ref()?.get(FILE));
                let json = json.map(|bytes| String::from_utf8(bytes.0.clone()));
                let json = json.transpose().map_err(|error| failed(&error))?;
                Ok(StoredTokens {
                    json: json.unwrap_or_default(),
                    secret: found.map(Box::new),
                })
            }
            Self::Folder(file) => {
                let file = file.clone();
                let read = tokio::task::spawn_blocking(move || read_file(&file)).await;
                let json = read
                    .map_err(|error| failed(&error))?
                    .map_err(|error| failed(&error))?;
                Ok(StoredTokens { json, secret: None })
            }
        }
    }

    /// Replaces what was read.
    pub(super) async fn write(&self, over: StoredTokens, json: String) -> Result<(), TokenWriteError> {
        let failed = |error: &dyn fmt::Display| {
            TokenWriteError::Failed(format!("cannot write {}: {error}", self.name()))
        };
        if json.len() > MAX_JSON_BYTES {
            let size = json.len();
            return Err(failed(&format_args!("{size} bytes, more than {MAX_JSON_BYTES}")));
        }
        match self {
            Self::Secret(api) => {
                let request = write_secret(api, over.secret, json);
                match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
                    Ok(Ok(())) => Ok(()),
                    // Changed, created or deleted by another process.
                    Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                        Err(TokenWriteError::Conflict)
                    }
                    Ok(Err(error)) => Err(failed(&error)),
                    Err(error) => Err(failed(&error)),
                }
            }
            Self::Folder(file) => {
                let file = file.clone();
                let written = tokio::task::spawn_blocking(move || {
                    if read_file(&file)? != over.json {
                        return Ok(false);
                    }
                    replace_file(&file, &json).map(|()| true)
                });
                match written.await {
                    Ok(Ok(true)) => Ok(()),
                    Ok(Ok(false)) => Err(TokenWriteError::Conflict),
                    Ok(Err(error)) => Err(failed(&error)),
                    Err(error) => Err(failed(&error)),
                }
            }
        }
    }
}

async fn write_secret(api: &Api<Secret>, over: Option<Box<Secret>>, json: String) -> kube::Result<()> {
    let params = PostParams::default();
    let is_new = over.is_none();
    let mut secret = over.map(|secret| *secret).unwrap_or_default();
    secret
        .data
        .get_or_insert_default()
        .insert(FILE.to_owned(), ByteString(json.into_bytes()));
    if !is_new {
        return api.replace(SECRET, &params, &secret).await.map(drop);
    }
    secret.metadata.name = Some(SECRET.to_owned());
    secret.metadata.labels = Some(BTreeMap::from([(
        "app.kubernetes.io/name".to_owned(),
        "virtfleet-collector".to_owned(),
    )]));
    secret.type_ = Some("Opaque".to_owned());
    api.create(&params, &secret).await.map(drop)
}

/// The content of the file; empty if there is none.
fn read_file(file: &Path) -> io::Result<String> {
    let opened = match open_regular(file, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        opened => opened?,
    };
    let mut json = String::new();
    opened.take(MAX_JSON_BYTES as u64 + 1).read_to_string(&mut json)?;
    if json.len() > MAX_JSON_BYTES {
        return Err(io::Error::other(format!("more than {MAX_JSON_BYTES} bytes")));
    }
    Ok(json)
}

/// Writes a temporary file and renames it. A crash leaves the old file or the new one.
fn replace_file(file: &Path, json: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder)?;
    let new = folder.join(format!(".{FILE}.new"));
    write_private(&new, json.as_bytes())?;
    fs::rename(&new, file)?;
    File::open(folder)?.sync_all()
}
