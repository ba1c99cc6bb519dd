//! Tests of pulls over a connection that an agent opened.

use std::time::Instant;

use prometheus_client::metrics::gauge::Gauge;
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use virtfleet_collector_core::way::AgentWay;
use virtfleet_runtime::tls::{AGENT_DNS_NAME, ClientTls, IssuedTls};
use virtfleet_wire::ids::VmKey;

use super::*;
use crate::{
    scrape::{PullLimits, peer::PeerCertificate, transport::AgentTransport},
    slots::{ConnectionSlots, CountedSlot},
};

/// Pulls over an open connection whose agent has a certificate until `not_after`, in seconds since
/// 1970. Returns the number of bytes that the agent read before it closed the connection, or saw
/// it closed, and the end of the pull.
async fn pull_until(not_after: u64) -> (usize, PullEnd) {
    let made = rcgen::generate_simple_self_signed([AGENT_DNS_NAME.to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    server.send_tls13_tickets = 0;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let agent = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let mut stream = acceptor.accept(stream).await.unwrap();
        // Fails if the connection was closed without an end of TLS.
        stream.read(&mut [0; 1024]).await.unwrap_or(0)
    });

    let tls = Arc::new(ClientTls::in_memory());
    let issued = IssuedTls {
        authorities: made.cert.pem(),
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem().into(),
    };
    tls.replace(&issued).unwrap();
    let now = Instant::now();
    let stream = TcpStream::connect(address).await.unwrap();
    let opened = AgentTransport::over(stream, address, tls.config(now).unwrap()).await;
    let (transport, chain) = opened.unwrap();
    let mut peer = PeerCertificate::of(&chain[0]).unwrap();
    peer.life.not_after = not_after;
    let target = DialTarget {
        key: VmKey {
            namespace: "ns".parse().unwrap(),
            name: "a".parse().unwrap(),
        },
        uid: None,
        vm_uid: None,
        address,
        way: AgentWay::Push { peer: address },
    };
    let connection = AgentConnection::new(transport, target, peer, tls.authorities(now));
    let slot = ConnectionSlots::new(1, 1).take(address.ip()).unwrap();
    let slot = CountedSlot::new(slot, Gauge::default());
    let pull = PushedPull {
        agent: Arc::new(PushedAgent::new(connection, slot, now)),
        agents: Arc::new(PushedAgents::new(Duration::from_mins(10))),
        is_last: false,
    };
    let limits = PullLimits {
        timeout: Duration::from_mins(1),
        report_bytes: 1024,
        metrics_bytes: 1024,
    };
    let ended = pull.pull(&Puller::new(tls, "d", limits), None, None).await.ended;
    // The connection is closed although `pull` still has it.
    let read = agent.await.unwrap();
    drop(pull);
    (read, ended)
}

#[tokio::test]
async fn a_connection_ends_when_the_certificate_of_its_agent_expires() {
    let (read, ended) = pull_until(u64::MAX).await;
    assert!(read > 0, "it is used: {ended:?}");
    // In 1970.
    let (read, ended) = pull_until(1).await;
    assert_eq!(read, 0, "it was closed without a request");
    assert!(ended.closed_before, "another way is tried at once: {ended:?}");
    let failure = ended.outcome.unwrap_err();
    let is_named = failure.message().contains("the agent's certificate has expired");
    assert!(is_named, "{failure:?}");
}
