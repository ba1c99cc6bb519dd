//! A server whose certificate is held in memory and replaced while it runs; and a socket that
//! listens on more addresses than are served.

use std::{convert::Infallible, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{Empty, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, client::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::PrivatePkcs8KeyDer, version::TLS13};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use virtfleet_runtime::{
    http::{Limits, RequestPeer, Server, ServerMetrics, Transport},
    shutdown::Shutdown,
    tls::{
        AGENT_DNS_NAME, CertificateChain, ClientAuthorities, ClientRule, HeldIdentity, HeldTls,
        ServerIdentity, TlsAcceptor, peer_names,
    },
};

use crate::pki::{Authority, Issued};

const AGENT: &str = "spiffe://test/vmi/ns/vm/uid";
const NEXT: &str = "spiffe://test/vmi/ns/vm/next";

fn identity(issued: &Issued, authorities: &str) -> ServerIdentity {
    let chain = CertificateChain::from_pem(issued.certificate.pem().as_bytes()).unwrap();
    let authorities = ClientAuthorities::from_pem(authorities.as_bytes()).unwrap();
    ServerIdentity::new(chain, &issued.key.serialize_der(), authorities).unwrap()
}

fn acceptor(identity: &Arc<HeldIdentity>, client_ca: &Path) -> Option<TlsAcceptor> {
    TlsAcceptor::held(HeldTls {
        identity: Arc::clone(identity),
        client_ca: client_ca.to_owned(),
        clients: ClientRule::CollectorsAnd(Vec::new()),
    })
    .ok()
}

/// Serves; each answer is 200 if the request carries the names of a client with TLS, else 204.
async fn serve(listener: TcpListener, transport: Transport) {
    let service = service_fn(|request: Request<Incoming>| async move {
        let peer = request.extensions().get::<Arc<RequestPeer>>().unwrap();
        let mut response = Response::new(Full::new(Bytes::new()));
        if peer.names.is_none() {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        Ok::<_, Infallible>(response)
    });
    let server = Server::new(service, Limits::default(), ServerMetrics::default());
    server.serve(listener, transport, Shutdown::default()).await;
}

/// The status of an answer. None: no answer. With hyper 1.12 a client's request sometimes never
/// ends if its connection is closed while it is being sent, so silence is limited here.
async fn status(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Option<StatusCode> {
    let exchange = async {
        let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request = Request::get("/")
            .header("host", "test")
            .body(Empty::new())
            .unwrap();
        let status = sender.send_request(request).await?.status();
        driver.abort();
        Ok::<_, hyper::Error>(status)
    };
    tokio::time::timeout(Duration::from_secs(20), exchange)
        .await
        .ok()?
        .ok()
}

/// The URI in the certificate of the server that answers this client. None: no answer.
async fn presented(address: SocketAddr, servers: &Authority, client: &Issued) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(servers.der()).unwrap();
    let key = PrivatePkcs8KeyDer::from(client.key.serialize_der());
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![client.certificate.der().clone()], key.into())
        .unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector
        .connect(AGENT_DNS_NAME.try_into().unwrap(), stream)
        .await
        .ok()?;
    let names = peer_names(&stream.get_ref().1.peer_certificates()?[0]);
    let answered = status(stream).await? == StatusCode::OK;
    answered.then(|| names[0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_identity_is_served_at_once_with_its_authorities() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    let (ca, foreign) = (Authority::new("test"), Authority::new("test"));
    std::fs::write(&file, ca.pem()).unwrap();
    let (agent, next) = (ca.issue(AGENT), ca.issue(NEXT));
    let collector = ca.issue("spiffe://test/collector");
    let other = foreign.issue("spiffe://test/collector");
    let held = Arc::new(HeldIdentity::new(identity(&agent, "")));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let transport = Transport::Tls(Arc::new(acceptor(&held, &file).unwrap()));
    tokio::spawn(serve(listener, transport));
    let own = |uri: &str| Some(uri.to_owned());
    assert_eq!(presented(at, &ca, &collector).await, own(AGENT));
    assert_eq!(presented(at, &ca, &other).await, None);
    assert_eq!(presented(at, &ca, &next).await, None, "an agent");

    // The authorities of the file stay; those of the identity before go.
    held.replace(identity(&next, &foreign.pem()));
    assert_eq!(presented(at, &ca, &collector).await, own(NEXT));
    assert_eq!(presented(at, &ca, &other).await, own(NEXT));
    // A file that is unusable at that time does not hold back a replacement.
    std::fs::write(&file, "x").unwrap();
    held.replace(identity(&agent, ""));
    assert_eq!(presented(at, &ca, &collector).await, own(AGENT));
    assert_eq!(presented(at, &ca, &other).await, None);
    // At the start it must be usable.
    assert!(acceptor(&held, &file).is_none() && acceptor(&held, dir.path()).is_none());
}

#[test]
fn a_key_of_another_certificate_is_no_identity() {
    let ca = Authority::new("test");
    let chain = CertificateChain::from_pem(ca.issue(AGENT).certificate.pem().as_bytes()).unwrap();
    let other = ca.issue(AGENT).key.serialize_der();
    ServerIdentity::new(chain, &other, ClientAuthorities::default()).unwrap_err();
    for text in [
        "",
        "x",
        "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
    ] {
        CertificateChain::from_pem(text.as_bytes()).unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_an_address_that_is_not_served_is_closed() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let transport = Transport::ByAddress(Arc::from([([127, 0, 0, 2].into(), Transport::Plain)]));
    tokio::spawn(serve(listener, transport));
    let answer = async |last: u8| {
        let address = SocketAddr::from(([127, 0, 0, last], port));
        status(TcpStream::connect(address).await.unwrap()).await
    };
    assert_eq!(answer(1).await, None);
    assert_eq!(answer(2).await, Some(StatusCode::NO_CONTENT));
}
