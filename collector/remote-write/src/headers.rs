//! Headers of a request.

use crate::Compression;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Remote write 1.0, `prometheus.WriteRequest`.
    V1,
    /// Remote write 2.0, `io.prometheus.write.v2.Request`.
    V2,
}

impl Protocol {
    /// Name for people: `1.0` or `2.0`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
            Self::V2 => "2.0",
        }
    }
}

/// Version and compression of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WireForm {
    pub protocol: Protocol,
    pub compression: Compression,
}

/// Headers that the sender sets itself, in lower case; a tenant's settings must not contain them.
/// The specification reserves the first four, and HTTP needs the others for itself.
pub const RESERVED_HEADERS: [&str; 10] = [
    "content-encoding",
    "content-type",
    "user-agent",
    "x-prometheus-remote-write-version",
    "connection",
    "content-length",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Whether a header, in any case, is one of [`RESERVED_HEADERS`].
pub fn is_reserved(name: &str) -> bool {
    RESERVED_HEADERS
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// The reserved headers of a request, without `User-Agent`, which names the sender. Names are in
/// lower case.
pub const fn headers(protocol: Protocol, compression: Compression) -> [(&'static str, &'static str); 3] {
    let (content_type, version) = match protocol {
        // A receiver of 1.0 may refuse a parameter that it does not know.
        Protocol::V1 => ("application/x-protobuf", "0.1.0"),
        Protocol::V2 => (
            "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            "2.0.0",
        ),
    };
    [
        ("content-type", content_type),
        ("content-encoding", compression.content_encoding()),
        ("x-prometheus-remote-write-version", version),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_the_headers_of_its_specification() {
        assert_eq!(
            headers(Protocol::V1, Compression::Snappy),
            [
                ("content-type", "application/x-protobuf"),
                ("content-encoding", "snappy"),
                ("x-prometheus-remote-write-version", "0.1.0"),
            ]
        );
        assert_eq!(
            headers(Protocol::V2, Compression::Snappy),
            [
                (
                    "content-type",
                    "application/x-protobuf;proto=io.prometheus.write.v2.Request"
                ),
                ("content-encoding", "snappy"),
                ("x-prometheus-remote-write-version", "2.0.0"),
            ]
        );
        for (name, _) in headers(Protocol::V2, Compression::Snappy) {
            assert!(is_reserved(name) && is_reserved(&name.to_uppercase()));
        }
        assert!(is_reserved("User-Agent") && !is_reserved("X-Scope-OrgID"));
    }
}
