//! Host and port of a server.

use http::Uri;

/// Host without brackets, and port, by default 443.
pub(super) fn host_and_port(uri: &Uri) -> (String, u16) {
    let host = uri.host().unwrap_or_default();
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    (host.to_owned(), uri.port_u16().unwrap_or(443))
}
