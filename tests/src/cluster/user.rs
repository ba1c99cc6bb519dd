//! Users of an API server.

use std::{fs::File, io::Read as _};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// A user with a bearer token.
#[derive(Debug, Clone)]
pub struct User {
    /// The name, as used by RBAC.
    pub name: String,
    /// Groups of the token; a service account's groups are implied.
    pub groups: Vec<String>,
    /// The token.
    pub token: String,
}

impl User {
    /// A user with a random token, for `ApiServer::start_with`.
    pub fn new(name: &str, groups: &[&str]) -> Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            groups: groups.iter().map(ToString::to_string).collect(),
            token: random_token()?,
        })
    }

    /// The user's line in `--token-auth-file`.
    pub(super) fn line(&self) -> String {
        let Self { name, groups, token } = self;
        format!("{token},{name},{name},\"{}\"\n", groups.join(","))
    }

    /// A kubeconfig with one cluster, one user and one context, with all data inline.
    pub(super) fn kubeconfig(&self, server: &str, ca_pem: &str) -> String {
        let Self { name, token, .. } = self;
        let ca = STANDARD.encode(ca_pem);
        format!(
            "\
apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: \"{name}\"
  user:
    token: {token}
contexts:
- name: test
  context:
    cluster: test
    user: \"{name}\"
current-context: test
"
        )
    }
}

fn random_token() -> Result<String> {
    let mut bytes = [0u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("/dev/urandom")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
