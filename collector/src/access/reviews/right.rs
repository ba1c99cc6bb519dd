//! The rights that are reviewed, and the callers that have them.

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use virtfleet_collector_core::access::Caller;
use virtfleet_wire::ids::Namespace;

/// A SHA-256 digest.
pub(super) type Sha256Digest = [u8; SHA256_OUTPUT_LEN];

/// API group of the reviewed resources.
pub(super) const GROUP: &str = "virtfleet.io";

/// What a request changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteResource {
    /// VMs: certificates are revoked, identities are reset.
    Vms,
    /// The certificate authorities: they are rotated.
    CertificateAuthorities,
    /// Join tokens: they are created and revoked.
    JoinTokens,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::access) enum AccessRight {
    /// To read the whole fleet.
    ReadAll,
    /// To read the VMs of a namespace.
    Read(Namespace),
    /// To send requests that change something.
    Write(WriteResource),
}

impl AccessRight {
    /// Verb, resource and namespace; cluster-wide without namespace.
    pub(super) fn attributes(&self) -> (&'static str, &'static str, Option<&Namespace>) {
        match self {
            Self::ReadAll => ("list", "vms", None),
            Self::Read(namespace) => ("get", "vms", Some(namespace)),
            Self::Write(WriteResource::Vms) => ("update", "vms", None),
            Self::Write(WriteResource::CertificateAuthorities) => ("update", "certificateauthorities", None),
            Self::Write(WriteResource::JoinTokens) => ("update", "jointokens", None),
        }
    }
}

/// The command that checks a right.
pub(in crate::access) fn can_i(right: &AccessRight) -> String {
    let (verb, resource, namespace) = right.attributes();
    let place = match namespace {
        Some(namespace) => format!("-n {namespace}"),
        None => "--all-namespaces".to_owned(),
    };
    format!("kubectl auth can-i {verb} {resource}.{GROUP} {place}")
}

/// A right of a caller, who is known by a digest of all that the review depends on.
pub(super) type RightKey = (Sha256Digest, AccessRight);

pub(super) fn caller_digest(caller: &Caller) -> Sha256Digest {
    let mut context = Context::new(&SHA256);
    let mut add = |text: &str| {
        context.update(&text.len().to_be_bytes());
        context.update(text.as_bytes());
    };
    add(&caller.name);
    add(caller.uid.as_deref().unwrap_or_default());
    for (kind, values) in [("group", &caller.groups)]
        .into_iter()
        .chain(caller.extra.iter().map(|(key, values)| (key.as_str(), values)))
    {
        add(kind);
        add(&values.len().to_string());
        for value in values {
            add(value);
        }
    }
    let mut key = [0; SHA256_OUTPUT_LEN];
    key.copy_from_slice(context.finish().as_ref());
    key
}
