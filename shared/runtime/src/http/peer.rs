//! The client of a request.

use std::net::SocketAddr;

/// The client of a request. The server adds it to each request as the extension
/// `Arc<RequestPeer>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPeer {
    pub address: SocketAddr,
    /// The URIs, then the DNS names, of its verified certificate; none without a certificate.
    pub names: Option<Vec<String>>,
}
