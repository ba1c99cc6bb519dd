//! The client of a request, after authentication.

use std::collections::BTreeMap;

/// How a caller was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuthMethod {
    Certificate,
    /// By a bearer token that the infra cluster's API server has verified.
    TokenReview,
    /// By a bearer token in the file of static tokens.
    StaticToken,
    /// Not at all: the settings require no authentication, which is possible on loopback only.
    Local,
}

impl AuthMethod {
    /// The name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::TokenReview => "token_review",
            Self::StaticToken => "static_token",
            Self::Local => "local",
        }
    }
}

/// The client of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    pub name: String,
    pub groups: Vec<String>,
    /// UID that the API server knows it by.
    pub uid: Option<String>,
    /// Further attributes that the API server's authenticator has set.
    pub extra: BTreeMap<String, Vec<String>>,
    /// How it was authenticated.
    pub method: AuthMethod,
}

impl Caller {
    /// A caller without groups and attributes.
    pub fn new(name: impl Into<String>, method: AuthMethod) -> Self {
        Self {
            name: name.into(),
            groups: Vec::new(),
            uid: None,
            extra: BTreeMap::new(),
            method,
        }
    }
}
