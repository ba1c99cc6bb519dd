//! Tests of the server on a real loopback socket: authorization, limits, and that a shutdown under
//! load loses no response.

use std::{convert::Infallible, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, client::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use rcgen::{CertificateParams, KeyPair};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};
use virtfleet_runtime::{
    http::{Limits, Server, ServerMetrics, Transport},
    shutdown::Shutdown,
    tls::{AGENT_DNS_NAME, ClientRule, ServerTlsPaths, TlsAcceptor, check_agent_names, check_pem},
};

use crate::pki::{acceptor, pki, soon, tls_over};

struct Running {
    address: SocketAddr,
    shutdown: Shutdown,
    metrics: ServerMetrics,
    task: JoinHandle<usize>,
    /// Lets `/slow` respond.
    release: Arc<Notify>,
}

async fn start(limits: Limits, transport: Transport) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = ServerMetrics::register(&mut Registry::default());
    let shutdown = Shutdown::default();
    let release = Arc::new(Notify::new());
    let gate = release.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let gate = gate.clone();
        async move {
            if request.uri().path() == "/slow" {
                gate.notified().await;
            }
            let size = if request.uri().path() == "/big" {
                64 << 20
            } else {
                3
            };
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![b'x'; size]))))
        }
    });
    let server = Server::new(service, limits, metrics.clone());
    let task = tokio::spawn(server.serve(listener, transport, shutdown.clone()));
    Running {
        address,
        shutdown,
        metrics,
        task,
        release,
    }
}

/// Whether there is no response: an error or silence. With hyper 1.12 a client's request sometimes
/// never ends if its connection is closed while it is being sent (once in some hundred tries), so
/// silence is limited here.
async fn refused<T, E>(answer: impl Future<Output = Result<T, E>>) -> bool {
    !matches!(
        tokio::time::timeout(Duration::from_secs(3), answer).await,
        Ok(Ok(_))
    )
}

async fn get(address: SocketAddr, path: &str) -> Result<(StatusCode, usize), Box<dyn std::error::Error>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::get(path).header("host", "test").body(Empty::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let size = response.into_body().collect().await?.to_bytes().len();
    driver.abort();
    Ok((status, size))
}

/// Waits until `condition` holds; the deadline only bounds a failure.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

async fn tls_client(
    dir: &Path,
    name: &str,
    address: SocketAddr,
) -> Result<(StatusCode, Vec<String>), Box<dyn std::error::Error>> {
    tls_over(dir, name, TcpStream::connect(address).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_under_load_finishes_every_running_request_and_takes_no_new_one() {
    let running = start(Limits::default(), Transport::Plain).await;
    let address = running.address;
    let clients: Vec<_> = (0..20)
        .map(|_| tokio::spawn(async move { get(address, "/slow").await.unwrap() }))
        .collect();
    let requests = running.metrics.requests.clone();
    until("20 requests are running", || requests.get() == 20).await;
    running.shutdown.graceful.cancel();
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), refused)
        .await
        .expect("the listener closes");
    running.release.notify_waiters();
    for client in clients {
        assert_eq!(client.await.unwrap(), (StatusCode::OK, 3));
    }
    assert_eq!(running.task.await.unwrap(), 0, "no connection was aborted");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_requests_are_aborted_after_the_grace_period() {
    let limits = Limits {
        shutdown_grace: Duration::from_millis(50),
        ..Limits::default()
    };
    let running = start(limits, Transport::Plain).await;
    let address = running.address;
    let client = tokio::spawn(async move { get(address, "/slow").await.is_err() });
    let requests = running.metrics.requests.clone();
    until("the request runs", || requests.get() == 1).await;
    running.shutdown.graceful.cancel();
    assert_eq!(running.task.await.unwrap(), 1);
    assert!(client.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_get_503_and_slow_ones_504() {
    let limits = Limits {
        requests: 1,
        // Longer than the second request takes on a busy machine.
        request_timeout: Duration::from_secs(3),
        ..Limits::default()
    };
    let running = start(limits, Transport::Plain).await;
    let address = running.address;
    let slow = tokio::spawn(async move { get(address, "/slow").await.unwrap().0 });
    let requests = running.metrics.requests.clone();
    until("the slow one runs", || requests.get() == 1).await;
    assert_eq!(
        get(address, "/").await.unwrap().0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(slow.await.unwrap(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(
        (running.metrics.busy.get(), running.metrics.timeouts.get()),
        (1, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_disconnected() {
    let limits = Limits {
        write_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let running = start(limits, Transport::Plain).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let open = running.metrics.open.clone();
    until("the connection is counted", || open.get() == 1).await;
    stream
        .write_all(b"GET /big HTTP/1.1\r\nhost: test\r\n\r\n")
        .await
        .unwrap();
    until("the connection is gone", || open.get() == 0).await;
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest).await;
    assert!(read.is_err() || rest.len() < 64 << 20, "the response was aborted");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_verified_clients_except_agents_are_authorized() {
    let (dir, _ca) = pki();
    let running = start(Limits::default(), Transport::Tls(Arc::new(acceptor(dir.path())))).await;
    let (status, names) = tls_client(dir.path(), "collector", running.address)
        .await
        .unwrap();
    assert_eq!(status, StatusCode::OK);
    assert_eq!(names, ["spiffe://test/vmi/ns/vm/uid", AGENT_DNS_NAME]);

    assert!(
        refused(tls_client(dir.path(), "agent", running.address)).await,
        "an agent"
    );
    let unauthorised = running.metrics.unauthorised.clone();
    until("it is counted", || unauthorised.get() == 1).await;

    let (foreign, _) = pki();
    std::fs::copy(dir.path().join("ca.crt"), foreign.path().join("ca.crt")).unwrap();
    assert!(
        refused(tls_client(foreign.path(), "collector", running.address)).await,
        "another authority"
    );
    assert!(refused(get(running.address, "/")).await, "no TLS at all");
    let failures = running.metrics.handshake_failures.clone();
    until("both are counted", || failures.get() == 2).await;
}

#[test]
fn changed_certificates_are_reloaded_and_invalid_ones_ignored() {
    let (dir, ca) = pki();
    let acceptor = acceptor(dir.path());
    let now = std::time::Instant::now();
    let first = acceptor.config(now);
    ca.write(dir.path(), "agent", "spiffe://test/vmi/ns/vm/uid");
    assert!(
        Arc::ptr_eq(&first, &acceptor.config(now)),
        "not checked again so soon"
    );
    let second = acceptor.config(now + Duration::from_mins(1));
    assert!(!Arc::ptr_eq(&first, &second));
    std::fs::write(dir.path().join("agent.key"), "broken").unwrap();
    assert!(Arc::ptr_eq(
        &second,
        &acceptor.config(now + Duration::from_mins(2))
    ));
}

#[test]
fn each_unusable_file_is_named() {
    let (dir, _ca) = pki();
    let paths = |certificate: &str, key: &str, ca: &str| ServerTlsPaths {
        certificate: dir.path().join(certificate),
        key: dir.path().join(key),
        client_ca: Some(dir.path().join(ca)),
        clients: ClientRule::AllExceptAgents,
    };
    std::fs::write(dir.path().join("empty"), "").unwrap();
    for (paths, named) in [
        (paths("absent", "agent.key", "ca.crt"), "absent"),
        (paths("empty", "agent.key", "ca.crt"), "empty"),
        (paths("agent.crt", "empty", "ca.crt"), "empty"),
        (paths("agent.crt", "collector.key", "ca.crt"), "agent.crt"),
        (paths("agent.crt", "agent.key", "empty"), "empty"),
    ] {
        let error = TlsAcceptor::new(paths).unwrap_err();
        assert_eq!(error.is_missing_file(), named == "absent");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn validity_period_of_pem_certificates() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 2);
    params.not_after = rcgen::date_time_ymd(2031, 3, 4);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let valid = check_pem(pem.as_bytes(), false).unwrap().unwrap();
    assert_eq!(
        (valid.not_before, valid.not_after),
        (1_577_923_200, 1_930_348_800)
    );
    params.not_after = rcgen::date_time_ymd(2025, 1, 1);
    let shorter = params.self_signed(&key).unwrap().pem();
    let both = check_pem((pem + &shorter).as_bytes(), false).unwrap().unwrap();
    assert_eq!(both.not_after, 1_735_689_600, "the narrowest of a chain");
    assert_eq!(check_pem(key.serialize_pem().as_bytes(), true).unwrap(), None);
    for (text, key, reason) in [
        ("", false, "no certificate"),
        ("", true, "no private key"),
        (
            "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
            false,
            "cannot be parsed",
        ),
    ] {
        assert!(
            check_pem(text.as_bytes(), key).unwrap_err().contains(reason),
            "{text:?}"
        );
    }
}

/// Connections that send nothing, from one address.
async fn idle(count: usize, to: SocketAddr, from: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
        held.push(socket.connect(to).await.unwrap());
    }
    held
}

/// From another address, and from the same, like all clients behind KubeVirt's masquerade binding.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_block_other_clients() {
    let (dir, _ca) = pki();
    for transport in [Transport::Plain, Transport::Tls(Arc::new(acceptor(dir.path())))] {
        let tls = matches!(transport, Transport::Tls(_));
        let limits = Limits {
            connections: 16,
            new_connections: 8,
            connections_per_peer: 12,
            ..Limits::default()
        };
        let running = start(limits, transport).await;
        for from in ["127.0.0.9", "127.0.0.1"] {
            let held = idle(200, running.address, from).await;
            for _ in 0..3 {
                if tls {
                    let answer =
                        soon("an answer", tls_client(dir.path(), "collector", running.address)).await;
                    assert_eq!(answer.unwrap().0, StatusCode::OK, "{from}");
                } else {
                    let answer = soon("an answer", get(running.address, "/")).await;
                    assert_eq!(answer.unwrap().0, StatusCode::OK, "{from}");
                }
            }
            assert!(running.metrics.dropped.get() > 100);
            assert!(running.metrics.open.get() <= 16);
            drop(held);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_complete_request_are_closed() {
    let limits = Limits {
        // Longer than a busy machine pauses between a connection and its first request.
        first_byte_timeout: Duration::from_secs(1),
        handshake_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let running = start(limits, Transport::Plain).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let mut half = TcpStream::connect(running.address).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nho").await.unwrap();
    let mut kept = TcpStream::connect(running.address).await.unwrap();
    kept.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    for stream in [&mut silent, &mut half] {
        let mut rest = Vec::new();
        drop(soon("the end", stream.read_to_end(&mut rest)).await);
        assert!(rest.is_empty());
    }
    let failures = running.metrics.handshake_failures.clone();
    until("both are counted", || failures.get() == 2).await;
    // After its first request a client may be idle for longer.
    kept.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answers = Vec::new();
    soon("both answers", kept.read_to_end(&mut answers))
        .await
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&answers).matches("200 OK").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_share_the_connection_limit_without_blocking() {
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    let service = service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"x"))))
    });
    let metrics = ServerMetrics::register(&mut Registry::default());
    let server = Server::new(service, limits, metrics);
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(
            server
                .clone()
                .serve(listener, Transport::Plain, Shutdown::default()),
        );
        let answer = soon("an answer from each listener", get(address, "/")).await;
        assert_eq!(answer.unwrap().0, StatusCode::OK);
    }
}

#[test]
fn a_certificate_without_the_agents_names_is_detected() {
    let (dir, ca) = pki();
    let pem = |name: &str| std::fs::read(dir.path().join(format!("{name}.crt"))).unwrap();
    check_agent_names(&pem("agent")).unwrap();
    let reason = check_agent_names(&pem("collector")).unwrap_err();
    assert!(
        reason.contains("has no URI spiffe://") && reason.contains("spiffe://test/collector"),
        "{reason}"
    );
    let reason = check_agent_names(ca.pem().as_bytes()).unwrap_err();
    assert!(
        reason.contains("has no DNS name agent.virtfleet.internal"),
        "{reason}"
    );
}
