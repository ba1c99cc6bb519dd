//! Settings for connecting to a server of the operator: the receiver of its samples, and its
//! Prometheus.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Certificates in PEM files for a server of the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EndpointTls {
    /// The authorities of the server's certificate. Absent: those of the system.
    pub ca: Option<String>,
    /// The client certificate and its chain.
    pub certificate: Option<String>,
    /// The certificate's private key.
    pub key: Option<String>,
    /// The name in the server's certificate. Absent: the host in the URL.
    pub server_name: Option<String>,
}

/// A header of each request. Exactly one of `value` and `file` is set.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EndpointHeader {
    /// Its name. Headers of HTTP itself and of the protocol are refused.
    pub name: String,
    /// Its value, if it is not secret.
    pub value: Option<String>,
    /// A file with its value.
    pub file: Option<String>,
}

/// Values may be secret, too.
impl fmt::Debug for EndpointHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointHeader")
            .field("name", &self.name)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// Credentials for the header Authorization: `username` with `passwordFile`, or `tokenFile`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EndpointAuth {
    /// The user name of basic authentication.
    pub username: Option<String>,
    /// A file with the password.
    pub password_file: Option<String>,
    /// A file with a bearer token.
    pub token_file: Option<String>,
}

impl EndpointAuth {
    /// Whether any of the keys is set.
    pub fn is_set(&self) -> bool {
        self.username.is_some() || self.password_file.is_some() || self.token_file.is_some()
    }
}
