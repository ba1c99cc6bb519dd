//! Host and port of a server.

use http::Uri;

/// Host without brackets, and port, by default that of the scheme.
pub(crate) fn host_and_port(uri: &Uri) -> (String, u16) {
    let host = uri.host().unwrap_or_default();
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    (host.to_owned(), uri.port_u16().unwrap_or(default))
}
