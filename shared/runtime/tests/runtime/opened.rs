//! A connection that the process opened itself, and on which it is the server.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use prometheus_client::registry::Registry;
use tokio::{io::AsyncWriteExt as _, net::TcpListener};
use virtfleet_runtime::{
    http::{ConnectionEnd, Limits, Server, ServerMetrics},
    shutdown::Shutdown,
};

use crate::pki::{acceptor, pki, soon, tls_over, tls_stream};

/// The process that opens the connection is the server on it.
#[tokio::test(flavor = "multi_thread")]
async fn an_opened_connection_is_served_to_authorised_peers_until_the_shutdown() {
    let (dir, _ca) = pki();
    let tls = Arc::new(acceptor(dir.path()));
    let peer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = peer.local_addr().unwrap();
    let metrics = ServerMetrics::register(&mut Registry::default());
    let service = service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
    });
    let server = Server::new(service, Limits::default(), metrics.clone());
    let shutdown = Shutdown::default();
    let open = || {
        let stream = std::net::TcpStream::connect(address).unwrap();
        let (server, tls, shutdown) = (server.clone(), tls.clone(), shutdown.clone());
        tokio::spawn(async move { server.serve_opened(stream, tls, &shutdown).await.unwrap() })
    };
    // The peer closes after one request.
    for (name, expected) in [("collector", true), ("agent", false)] {
        let ending = open();
        let (stream, _) = peer.accept().await.unwrap();
        let answer = tls_over(dir.path(), name, stream);
        assert_eq!(
            tokio::time::timeout(Duration::from_secs(20), answer)
                .await
                .is_ok_and(|answer| answer.is_ok()),
            expected,
            "{name}"
        );
        let end = soon("the end", ending).await.unwrap();
        assert_eq!(end == ConnectionEnd::Served, expected, "{end:?}");
        assert_eq!(
            matches!(end, ConnectionEnd::Unauthorised(_)),
            !expected,
            "{end:?}"
        );
    }
    // An authorised peer that sends no request.
    let limits = Limits {
        idle_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let hasty = Server::new(service, limits, metrics.clone());
    let stream = std::net::TcpStream::connect(address).unwrap();
    let (tls_of_hasty, never) = (tls.clone(), Shutdown::default());
    let ending = tokio::spawn(async move { hasty.serve_opened(stream, tls_of_hasty, &never).await.unwrap() });
    let (stream, _) = peer.accept().await.unwrap();
    let _held = tls_stream(dir.path(), "collector", stream).await.unwrap();
    assert_eq!(soon("the end", ending).await.unwrap(), ConnectionEnd::Served);
    // No TLS.
    let ending = open();
    let (mut stream, _) = peer.accept().await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let end = soon("the end", ending).await.unwrap();
    assert!(matches!(end, ConnectionEnd::NoClient(_)), "{end:?}");
    // A silent peer does not delay the shutdown.
    let ending = open();
    let _silent = peer.accept().await.unwrap();
    shutdown.graceful.cancel();
    let end = soon("the end", ending).await.unwrap();
    assert_eq!(end, ConnectionEnd::Aborted);
    assert_eq!(metrics.open.get(), 0);
}
