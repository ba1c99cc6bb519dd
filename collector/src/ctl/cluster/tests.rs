//! The CLI in a cluster: with an API server that is a function, and one that forwards ports.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use clap::Parser as _;
use futures_util::{SinkExt as _, StreamExt as _};
use http::StatusCode;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

use crate::{
    access::two_tenants::{self, ADMIN, ALPHA},
    api::{
        self,
        testing::{self, TestFleet},
    },
    ctl::{cli::Cli, tests::run_cli},
    tls_testing::TlsListener,
};

/// An API server, and a collector that only it can reach.
struct FakeCluster {
    shared: Arc<Shared>,
    folder: tempfile::TempDir,
    address: SocketAddr,
    _runtime: Runtime,
}

struct Shared {
    collector: Router,
    /// The collector with TLS, in its pod.
    pod: SocketAddr,
    /// Paths that the API server answers with 403.
    forbidden: Mutex<Vec<&'static str>>,
    /// Paths of all requests, with the header of the token for the collector.
    requests: Mutex<Vec<(String, Option<String>)>>,
    /// The tokens for which TokenRequests were answered.
    requested: Mutex<Vec<Value>>,
}

impl FakeCluster {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let mut state = testing::state(TestFleet::new(testing::fleet()));
        state.access = two_tenants::access(false);
        let collector = api::router(state);
        let (listener, pod, address) = runtime.block_on(async {
            let pod = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let pod_address = pod.local_addr().unwrap();
            let router = collector.clone();
            tokio::spawn(async move { axum::serve(TlsListener(pod, acceptor()), router).await });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            (listener, pod_address, address)
        });
        let shared = Arc::new(Shared {
            collector,
            pod,
            forbidden: Mutex::default(),
            requests: Mutex::default(),
            requested: Mutex::default(),
        });
        let server = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(listener, server).await });
        Self {
            shared,
            folder: tempfile::tempdir().unwrap(),
            address,
            _runtime: runtime,
        }
    }

    /// A command line with a kubeconfig that has this user.
    fn cli(&self, user: &str, args: &[&str]) -> Cli {
        let file = self.folder.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u, namespace: team-a}}}}]\nusers: [{{name: u, user: {user}}}]\n",
            self.address
        );
        std::fs::write(&file, text).unwrap();
        let mut line = vec!["virtfleetctl", "--kubeconfig", file.to_str().unwrap()];
        line.extend(args);
        Cli::try_parse_from(line).unwrap()
    }

    /// Exit code, standard output and standard error with a kubeconfig that has this user.
    fn run(&self, user: &str, args: &[&str]) -> (u8, String, String) {
        run_cli(&self.cli(user, args), false)
    }

    fn forbid(&self, paths: &[&'static str]) {
        *self.shared.forbidden.lock().unwrap() = paths.to_vec();
    }

    fn requests(&self) -> Vec<(String, Option<String>)> {
        std::mem::take(&mut *self.shared.requests.lock().unwrap())
    }
}

fn acceptor() -> tokio_rustls::TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["virtfleet-collector.virtfleet.svc".to_owned()]).unwrap();
    let chain = vec![params.self_signed(&key).unwrap().der().clone()];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config).into()
}

fn status(code: StatusCode, message: &str) -> Response {
    let body = json!({ "kind": "Status", "status": "Failure", "code": code.as_u16(), "message": message });
    (code, body.to_string()).into_response()
}

/// Answers as an API server: TokenRequests, the service proxy, pods, port-forwards.
async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let header = request.headers().get("virtfleet-authorization");
    let header = header.map(|value| value.to_str().unwrap().to_owned());
    shared.requests.lock().unwrap().push((path.clone(), header));
    if shared
        .forbidden
        .lock()
        .unwrap()
        .iter()
        .any(|part| path.contains(part))
    {
        return status(StatusCode::FORBIDDEN, &format!("{path} is forbidden"));
    }
    if let Some(account) = path.strip_suffix("/token") {
        let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        shared.requested.lock().unwrap().push(review["spec"].clone());
        let token = if account.ends_with("/virtfleetctl") {
            ADMIN
        } else {
            ALPHA
        };
        review["status"] = json!({ "token": token, "expirationTimestamp": "2999-01-01T00:00:00Z" });
        return review.to_string().into_response();
    }
    let prefix = "/api/v1/namespaces/virtfleet/services/https:virtfleet-collector:api/proxy";
    if let Some(rest) = request
        .uri()
        .path_and_query()
        .unwrap()
        .as_str()
        .strip_prefix(prefix)
    {
        let (mut head, body) = (Request::get(rest), Body::empty());
        // As an API server: its own credentials are removed, all other headers stay.
        for (name, value) in request
            .headers()
            .iter()
            .filter(|(name, _)| *name != "authorization")
        {
            head = head.header(name, value);
        }
        let request = head.body(body).unwrap();
        return tower::ServiceExt::oneshot(shared.collector.clone(), request)
            .await
            .unwrap();
    }
    match path.as_str() {
        "/api/v1/namespaces/virtfleet/pods" => {
            let pod = json!({
                "metadata": { "name": "pod-1", "namespace": "virtfleet" },
                "spec": { "containers": [{ "name": "c", "ports": [{ "name": "api", "containerPort": 10912 }] }] },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            });
            let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod] });
            list.to_string().into_response()
        }
        "/api/v1/namespaces/virtfleet/pods/pod-1/portforward" => forward(&shared, request),
        _ => status(
            StatusCode::NOT_FOUND,
            &format!("the server could not find {path}"),
        ),
    }
}

/// Upgrades to a WebSocket that carries one port, as kubelet does: channel 0 has the data, channel
/// 1 errors, and each begins with the port.
fn forward(shared: &Shared, mut request: Request) -> Response {
    let key = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
    let (pod, upgrade) = (shared.pod, hyper::upgrade::on(&mut request));
    tokio::spawn(async move {
        let stream = TokioIo::new(upgrade.await.unwrap());
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        let (mut sink, mut source) = socket.split();
        for channel in [0, 1] {
            let [low, high] = 10912_u16.to_le_bytes();
            sink.send(Message::binary(vec![channel, low, high]))
                .await
                .unwrap();
        }
        let (mut from_pod, mut to_pod) = TcpStream::connect(pod).await.unwrap().into_split();
        let down = async {
            let mut bytes = vec![0; 1 << 14];
            while let Ok(count @ 1..) = from_pod.read(&mut bytes).await {
                let frame = [&[0][..], &bytes[..count]].concat();
                if sink.send(Message::binary(frame)).await.is_err() {
                    break;
                }
            }
        };
        let up = async {
            while let Some(Ok(message)) = source.next().await {
                if let Message::Binary(bytes) = message
                    && to_pod.write_all(&bytes[1..]).await.is_err()
                {
                    break;
                }
            }
        };
        tokio::join!(down, up);
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", key)
        .header("sec-websocket-protocol", "v4.channel.k8s.io")
        .body(Body::empty())
        .unwrap()
}

#[test]
fn without_a_token_a_service_account_reads_through_the_service_proxy() {
    let cluster = FakeCluster::new();
    let (code, out, err) = cluster.run("{}", &["clusters"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("prod"), "{out}");
    let requests = cluster.requests();
    let account = "/api/v1/namespaces/virtfleet/serviceaccounts/virtfleetctl/token";
    assert_eq!(
        requests.iter().filter(|(path, _)| path == account).count(),
        1,
        "one token for all requests"
    );
    let proxied = requests.iter().filter(|(path, _)| path.contains("/proxy/"));
    assert!(
        proxied.clone().count() >= 2,
        "the list, and the findings for its last line"
    );
    let expected = format!("Bearer {ADMIN}");
    assert!(
        proxied
            .clone()
            .all(|(_, token)| token.as_deref() == Some(&expected))
    );
    let spec = cluster.shared.requested.lock().unwrap()[0].clone();
    assert_eq!(
        (&spec["audiences"], &spec["expirationSeconds"]),
        (&json!(["virtfleet-collector"]), &json!(600))
    );

    // A tenant's account, in the namespace of the context; what it may not see is not found.
    let (code, _, err) = cluster.run("{}", &["vm", "cluster-a/worker-0", "--service-account", "reader"]);
    assert_eq!(code, 4, "{err}");
    let asked = cluster.requests();
    assert!(
        asked
            .iter()
            .any(|(path, _)| path == "/api/v1/namespaces/team-a/serviceaccounts/reader/token"),
        "{asked:?}"
    );
}

#[test]
fn the_token_of_a_kubeconfig_goes_through_a_port_forward() {
    let cluster = FakeCluster::new();
    let file = cluster.folder.path().join("token");
    std::fs::write(&file, ADMIN).unwrap();
    let program = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, 'echo \
         ''{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{{\"token\":\"{ADMIN}\"}}}}''']}}}}"
    );
    for user in [
        format!("{{token: {ADMIN}}}"),
        format!("{{tokenFile: {}}}", file.display()),
        program,
    ] {
        let (code, out, err) = cluster.run(&user, &["clusters"]);
        assert_eq!(code, 0, "{user}: {err}");
        assert!(out.contains("prod"), "{out}");
        let requests = cluster.requests();
        assert!(
            requests.iter().any(|(path, _)| path.ends_with("/portforward")),
            "{requests:?}"
        );
        assert!(
            requests
                .iter()
                .all(|(path, _)| !path.contains("/proxy/") && !path.ends_with("/token")),
            "{requests:?}"
        );
    }
    // The certificate is verified if its authority is known.
    let other = cluster.folder.path().join("ca.pem");
    std::fs::write(
        &other,
        CertificateParams::default()
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .pem(),
    )
    .unwrap();
    let cacert = other.to_str().unwrap();
    let user = format!("{{token: {ADMIN}}}");
    let (code, _, err) = cluster.run(&user, &["clusters", "--cacert", cacert]);
    assert!(code == 1 && err.contains("certificate"), "{err}");
}

#[test]
fn the_next_way_is_tried_and_all_failures_are_named() {
    let cluster = FakeCluster::new();
    let user = format!("{{token: {ADMIN}}}");
    cluster.forbid(&["/pods"]);
    let (code, out, err) = cluster.run(&user, &["clusters"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("prod"));
    cluster.forbid(&["/pods", "/token"]);
    let (code, _, err) = cluster.run(&user, &["clusters"]);
    assert_eq!(code, 1);
    for part in [
        "port-forward with the token of the kubeconfig",
        "/pods is forbidden",
        "/virtfleetctl/token is forbidden",
        "--service-account",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert!(!err.contains(ADMIN), "{err}");
    // A token that the collector does not accept.
    cluster.forbid(&[]);
    let (code, out, err) = cluster.run("{token: for-the-api-server-only}", &["clusters"]);
    assert!(code == 0 && out.contains("prod"), "{err}");
    let file = cluster.folder.path().join("token");
    std::fs::write(&file, "wrong\n").unwrap();
    let (code, _, err) = cluster.run("{}", &["clusters", "--token-file", file.to_str().unwrap()]);
    assert!(code == 1 && err.contains("the token is unknown"), "{err}");
    // What the collector denies is its own answer.
    std::fs::write(&file, ALPHA).unwrap();
    let (code, out, err) = cluster.run("{}", &["vms", "--token-file", file.to_str().unwrap()]);
    assert!(code == 0 && !out.contains("worker"), "{out} {err}");
}

#[test]
fn flags_of_the_cluster_and_of_a_url_exclude_each_other() {
    let cluster = FakeCluster::new();
    let (code, _, err) = cluster.run("{}", &["vms", "--server", "http://127.0.0.1:1"]);
    assert!(
        code == 2 && err.contains("--kubeconfig has no effect with --server"),
        "{err}"
    );
    let cli = Cli::try_parse_from([
        "virtfleetctl",
        "vms",
        "--server",
        "http://10.0.0.1:1",
        "--token-file",
        "t",
    ])
    .unwrap();
    let (code, _, err) = run_cli(&cli, false);
    assert!(
        code == 2 && err.contains("--token-file requires an https URL"),
        "{err}"
    );
}

#[test]
fn the_check_of_the_caller_gets_the_ways_that_flags_choose() {
    let cluster = FakeCluster::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let admin = "the service proxy, with tokens of the ServiceAccount virtfleet/virtfleetctl";
    for (user, flags, expected) in [
        ("{}", &[][..], &[admin][..]),
        ("{username: a, password: b}", &[], &[admin]),
        (
            "{token: t}",
            &[],
            &["a port-forward, with the token of your kubeconfig", admin],
        ),
        (
            "{token: t}",
            &["--token-file", "t"],
            &["the service proxy, with the token of --token-file"],
        ),
        (
            "{token: t}",
            &["--service-account", "viewer", "--via", "port-forward"],
            &["a port-forward, with tokens of the ServiceAccount team-a/viewer"],
        ),
        ("{token: t}", &["--server", "http://127.0.0.1:1"], &[]),
        ("{}", &["--cert", "c", "--key", "k"], &[]),
    ] {
        let cli = cluster.cli(user, &[&["status"][..], flags].concat());
        let ways = super::caller_ways(&cli.connection, &runtime).unwrap();
        let ways: Vec<String> = ways.iter().map(ToString::to_string).collect();
        assert_eq!(ways, expected, "{user} {flags:?}");
    }
}
