//! A TLS listener for the servers that tests start.

use std::{io, net::SocketAddr};

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Accepts connections whose handshake succeeds, and drops the others.
pub(crate) struct TlsListener(pub(crate) TcpListener, pub(crate) TlsAcceptor);

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;
    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let Ok((stream, address)) = self.0.accept().await else {
                continue;
            };
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, address);
            }
        }
    }
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
