//! Types for identifiers, so that a name cannot be passed in place of a UID.
//!
//! Each type is parsed from text, checks the rule of the system that issues it, is printed as it
//! was written, and is serialized as a plain string. Clones share the text, because a fleet stores
//! the name of each VM in a dozen places.

use std::{fmt, str::FromStr, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Text that is not a valid identifier of the requested kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {kind}: {rule}")]
pub struct InvalidId {
    /// Kind of identifier for messages, e.g. `namespace`.
    pub kind: &'static str,
    /// The rejected text.
    pub text: String,
    /// The violated rule.
    pub rule: &'static str,
}

/// Whether a text is an RFC 1123 subdomain, Kubernetes' rule for object names:
/// `[a-z0-9]([-a-z0-9.]*[a-z0-9])?`, at most 253 bytes.
fn is_dns_subdomain(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.len() <= 253
        && edge(text.as_bytes().first())
        && edge(text.as_bytes().last())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
}

/// Whether a text is an RFC 1123 label: a subdomain of one part, at most 63 bytes.
fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && !text.contains('.') && is_dns_subdomain(text)
}

/// Whether a text can be a UID of Kubernetes: opaque, printable, no white space, at most 128 bytes.
fn is_uid(text: &str) -> bool {
    !text.is_empty() && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_graphic())
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:expr, $rule:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text as written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if $check(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(InvalidId { kind: $kind, text: text.to_owned(), rule: $rule })
                }
            }
        }
        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.as_str().to_owned()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

text_id!(
    /// A Kubernetes namespace (RFC 1123 label).
    Namespace, "namespace", is_dns_label, "lower-case letters, digits and '-', at most 63 characters"
);
text_id!(
    /// The name of a VM and of its VMI (RFC 1123 subdomain).
    VmName, "VM name", is_dns_subdomain, "lower-case letters, digits, '-' and '.', at most 253 characters"
);
text_id!(
    /// The name of a Node, in the infra cluster or in a user cluster (RFC 1123 subdomain).
    NodeName, "node name", is_dns_subdomain, "lower-case letters, digits, '-' and '.', at most 253 characters"
);
text_id!(
    /// The name of a user cluster: name of its `UserCluster` object, and of its folder under
    /// `clusters/`.
    ClusterName, "cluster name", is_dns_subdomain, "lower-case letters, digits, '-' and '.', at most 253 characters"
);
text_id!(
    /// The name of a PersistentVolumeClaim, and of the DataVolume that fills it (RFC 1123
    /// subdomain).
    ClaimName, "claim name", is_dns_subdomain, "lower-case letters, digits, '-' and '.', at most 253 characters"
);
text_id!(
    /// The UID of an object: opaque and never reused, so it identifies one incarnation.
    Uid, "UID", is_uid, "1 to 128 printable characters without spaces"
);

/// Identifies a VM across all its incarnations: `namespace/name`. Its [`Uid`] identifies one
/// incarnation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct VmKey {
    /// The namespace of the VM in the infra cluster.
    pub namespace: Namespace,
    /// The VM's name in that namespace.
    pub name: VmName,
}

impl fmt::Display for VmKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A 128-bit UUID in its canonical lower-case form: SMBIOS system UUID, firmware UUID of a VMI,
/// machine-id.
///
/// Parsing accepts it with or without dashes and in either case, because SMBIOS, libvirt and
/// systemd each print another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Uuid(u128);

impl Uuid {
    /// Whether all bits are zero or all bits are one. SMBIOS 7.2.1 defines these as "not present"
    /// and "not set", so they identify nothing.
    pub fn is_placeholder(self) -> bool {
        self.0 == 0 || self.0 == u128::MAX
    }
    /// Whether it is the hash of a name (RFC 9562, version 5): before 1.5, KubeVirt makes the
    /// firmware UUID from the VM's name alone. So it is no secret, and VMs of equal names share it.
    pub fn is_of_name(self) -> bool {
        (self.0 >> 76) & 0xf == 5
    }
    /// Creates a UUID from its numeric value, most significant byte first.
    pub fn from_u128(value: u128) -> Self {
        Self(value)
    }
}

impl FromStr for Uuid {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refuse = || InvalidId {
            kind: "UUID",
            text: text.to_owned(),
            rule: "32 hexadecimal digits, dashes optional",
        };
        let dashes_in_place = text.len() == 36 && [8, 13, 18, 23].iter().all(|&i| text.as_bytes()[i] == b'-');
        let digits: String = if dashes_in_place {
            text.split('-').collect()
        } else {
            text.to_owned()
        };
        if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(refuse());
        }
        u128::from_str_radix(&digits, 16).map(Self).map_err(|_| refuse())
    }
}
impl TryFrom<String> for Uuid {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}
impl From<Uuid> for String {
    fn from(id: Uuid) -> String {
        id.to_string()
    }
}
impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(
            f,
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }
}
impl JsonSchema for Uuid {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Uuid".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "uuid" })
    }
}

/// An Ethernet address in lower case with colons, e.g. `02:00:00:00:00:01`. Parsing also accepts
/// `-` as separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr([u8; 6]);

impl MacAddr {
    /// Whether the address is `00:00:00:00:00:00`, as on loopback and tunnels. It identifies
    /// nothing.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }
}

impl FromStr for MacAddr {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refuse = || InvalidId {
            kind: "MAC address",
            text: text.to_owned(),
            rule: "six pairs of hexadecimal digits",
        };
        let mut octets = [0u8; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let part = parts
                .next()
                .filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *octet = part
                .and_then(|p| u8::from_str_radix(p, 16).ok())
                .ok_or_else(refuse)?;
        }
        if parts.next().is_some() {
            Err(refuse())
        } else {
            Ok(Self(octets))
        }
    }
}
impl TryFrom<String> for MacAddr {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}
impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> String {
        mac.to_string()
    }
}
impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
impl JsonSchema for MacAddr {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MacAddr".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{2}(:[0-9a-f]{2}){5}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_reads_every_form_and_prints_one() {
        let canonical = "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34";
        for form in [
            canonical,
            "8f4c2d1093ab4e57b0d65a1e7c9f2b34",
            "8F4C2D10-93AB-4E57-B0D6-5A1E7C9F2B34",
        ] {
            assert_eq!(form.parse::<Uuid>().unwrap().to_string(), canonical);
        }
        for bad in [
            "",
            "None",
            "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b3",
            "8f4c2d1093ab-4e57b0d65a1e7c9f2b34",
            "é".repeat(18).as_str(),
        ] {
            bad.parse::<Uuid>().unwrap_err();
        }
        assert!(
            "00000000-0000-0000-0000-000000000000"
                .parse::<Uuid>()
                .unwrap()
                .is_placeholder()
        );
        assert!(
            "ffffffff-ffff-ffff-ffff-ffffffffffff"
                .parse::<Uuid>()
                .unwrap()
                .is_placeholder()
        );
    }

    #[test]
    fn only_version_5_is_the_hash_of_a_name() {
        for (uuid, is_of_name) in [
            ("8f4c2d10-93ab-5e57-b0d6-5a1e7c9f2b34", true),
            ("8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34", false),
            ("55555555-5555-4555-a555-555555555555", false),
        ] {
            assert_eq!(uuid.parse::<Uuid>().unwrap().is_of_name(), is_of_name, "{uuid}");
        }
    }

    #[test]
    fn mac_reads_both_separators() {
        assert_eq!(
            "02-FC-00-00-00-01".parse::<MacAddr>().unwrap().to_string(),
            "02:fc:00:00:00:01"
        );
        for bad in [
            "",
            "02:fc:00:00:00",
            "02:fc:00:00:00:01:02",
            "2:fc:00:00:00:01",
            "0g:fc:00:00:00:01",
        ] {
            bad.parse::<MacAddr>().unwrap_err();
        }
    }

    #[test]
    fn names_follow_kubernetes_rules() {
        "cluster-abc".parse::<Namespace>().unwrap();
        "worker-0.example.com".parse::<NodeName>().unwrap();
        for bad in ["", "a.b", "-a", "a-", "A", "a_b", "a b", &"a".repeat(64)] {
            bad.parse::<Namespace>().unwrap_err();
        }
        for bad in ["", ".a", "a.", "A", "../etc", &"a".repeat(254)] {
            bad.parse::<VmName>().unwrap_err();
        }
    }
}
