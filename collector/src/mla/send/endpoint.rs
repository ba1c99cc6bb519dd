//! Where requests go, and as whom.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, Uri};
use rustls::ClientConfig;
use virtfleet_remote_write::{CompressionSetting, ProtocolSetting, check_settings, is_reserved};

/// A receiver of remote write.
#[derive(Clone)]
pub struct Endpoint {
    /// URL of the receiver, as [`parse_url`] accepts it.
    pub url: Uri,
    /// Headers of the tenant, such as `X-Scope-OrgID` or `Authorization`, added to each request.
    /// None of them is reserved.
    pub headers: HeaderMap,
    /// Trusted authorities and client certificate. Required for `https`, unused for `http`.
    pub tls: Option<Arc<ClientConfig>>,
    /// Name that the receiver's certificate must have, and that is sent as SNI; default: the host
    /// of the URL.
    pub server_name: Option<String>,
    pub protocol: ProtocolSetting,
    /// Compression of request bodies.
    pub compression: CompressionSetting,
    /// Timeout of one request, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Value of the header `User-Agent`.
    pub user_agent: String,
}

/// Without the values of headers, which may be secrets.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &self.url)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("server_name", &self.server_name)
            .field("protocol", &self.protocol)
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}

/// Why a receiver cannot be used. Displays as the rest of a sentence that begins with the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("url {0:?} is no URL of the form https://host[:port]/path")]
    Url(String),
    #[error("url contains a user name or password; set the header Authorization instead")]
    Credentials,
    #[error("url is https, but there are no trusted certificate authorities for it")]
    NoTls,
    #[error("server name {0:?} is neither a DNS name nor an IP address")]
    ServerName(String),
    #[error("header {0} is set by the sender itself; remove it")]
    ReservedHeader(String),
    /// Protocol and compression do not agree.
    #[error("{0}")]
    Settings(&'static str),
    #[error("user agent {0:?} has characters that a header cannot have")]
    UserAgent(String),
}

/// Reads the URL of a receiver: `http` or `https`, a host, and a path. A fragment is refused, and
/// so are user name and password, which would end up in logs.
///
/// # Errors
/// If it is anything else.
pub fn parse_url(text: &str) -> Result<Uri, EndpointError> {
    let malformed = || EndpointError::Url(text.chars().take(200).collect());
    let url: Uri = text.parse().map_err(|_| malformed())?;
    let authority = url.authority().ok_or_else(malformed)?;
    if authority.as_str().contains('@') {
        return Err(EndpointError::Credentials);
    }
    let scheme = matches!(url.scheme_str(), Some("http" | "https"));
    // `http` drops a fragment, which shows that the text is not what its author meant.
    if !scheme || authority.host().is_empty() || text.contains('#') {
        return Err(malformed());
    }
    Ok(url)
}

impl Endpoint {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), EndpointError> {
        parse_url(&self.url.to_string())?;
        if self.is_https() && self.tls.is_none() {
            return Err(EndpointError::NoTls);
        }
        if let Some(name) = self.headers.keys().find(|name| is_reserved(name.as_str())) {
            return Err(EndpointError::ReservedHeader(name.to_string()));
        }
        check_settings(self.protocol, self.compression).map_err(EndpointError::Settings)
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme_str() == Some("https")
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn endpoint(url: &str) -> Endpoint {
        Endpoint {
            url: parse_url(url).unwrap(),
            headers: HeaderMap::new(),
            tls: None,
            server_name: None,
            protocol: ProtocolSetting::Auto,
            compression: CompressionSetting::Auto,
            timeout: Duration::from_secs(1),
            user_agent: "test".to_owned(),
        }
    }

    #[test]
    fn urls_are_checked() {
        for url in [
            "http://127.0.0.1:9090/api/v1/write",
            "https://[::1]/push",
            "https://mla.example/api/v1/push?x=y",
        ] {
            assert_eq!(parse_url(url).unwrap().to_string(), url);
        }
        for url in [
            "",
            "/api/v1/push",
            "mla.example",
            "ftp://mla.example/",
            "http:///push",
            "http://a b/",
            "https://a/#b",
        ] {
            assert!(matches!(parse_url(url), Err(EndpointError::Url(_))), "{url}");
        }
        assert_eq!(parse_url("https://u:p@a/"), Err(EndpointError::Credentials));
    }

    #[test]
    fn settings_that_cannot_work_are_named_and_secrets_are_not_shown() {
        assert_eq!(endpoint("http://a/").check(), Ok(()));
        assert_eq!(endpoint("https://a/").check(), Err(EndpointError::NoTls));
        let mut reserved = endpoint("http://a/");
        reserved
            .headers
            .insert("content-type", HeaderValue::from_static("text/plain"));
        let error = EndpointError::ReservedHeader("content-type".to_owned());
        assert_eq!(reserved.check(), Err(error));
        let mut settings = endpoint("http://a/");
        settings.protocol = ProtocolSetting::V2;
        settings.compression = CompressionSetting::Zstd;
        assert!(matches!(settings.check(), Err(EndpointError::Settings(_))));
        let mut secret = endpoint("http://a/");
        secret
            .headers
            .insert("authorization", HeaderValue::from_static("Bearer geheim"));
        let shown = format!("{secret:?}");
        assert!(
            shown.contains("authorization") && !shown.contains("geheim"),
            "{shown}"
        );
    }
}
