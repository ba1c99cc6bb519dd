//! `host:port` as a type.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
    sync::Arc,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::InvalidId;

/// `host:port` with a DNS name, an IPv4 address, or an IPv6 address in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct HostPort {
    host: Arc<str>,
    port: u16,
}

impl HostPort {
    /// The DNS name or the address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Maximum length of a DNS name (RFC 1035, 2.3.4), in text.
const MAX_HOST_BYTES: usize = 253;

/// Whether a text is an IPv4 address or a DNS name: labels of letters, digits and `-`. A name of
/// digits only is an IPv4 address or nothing: `1.2.3` resolves to `1.2.0.3` in many libraries.
fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<Ipv4Addr>().is_ok();
    }
    text.len() <= MAX_HOST_BYTES && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

impl FromStr for HostPort {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let parsed = text.rsplit_once(':').and_then(|(host, port)| {
            let number = port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| number && *port > 0)?;
            let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(inner) => inner.parse::<Ipv6Addr>().ok().map(|_| inner)?,
                None => Some(host).filter(|host| is_host(host))?,
            };
            Some(Self {
                host: host.into(),
                port,
            })
        });
        parsed.ok_or_else(|| InvalidId {
            kind: "address",
            text: text.chars().take(80).collect(),
            rule: "host:port, e.g. virtfleet-relay.cluster-a.svc:10915, 10.0.0.5:10915 or [fd00::5]:10915",
        })
    }
}

impl TryFrom<String> for HostPort {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(address: HostPort) -> Self {
        address.to_string()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_host_and_port() {
        for text in [
            "virtfleet-relay.cluster-a.svc:10915",
            "relay.example.:1",
            "10.0.0.5:10915",
            "[fd00::5]:65535",
        ] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "relay",
            ":10915",
            "relay:0",
            "relay:65536",
            "relay:+1",
            "fd00::5:1",
            "[10.0.0.5]:1",
            "1.2.3:1",
            "1.2.3.4.:1",
            "-a:1",
            "a..b:1",
            "a b:1",
            "a/b:1",
            "http://a:1",
            "user@a:1",
            "a\r\nb:1",
        ] {
            assert!(text.parse::<HostPort>().is_err(), "{text:?}");
        }
    }
}
