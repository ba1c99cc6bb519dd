//! The API servers of all simulated user clusters, as one program on one port. The token of a
//! request says which cluster it is for.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{ServerConfig, crypto::ring};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::TlsAcceptor;
use virtfleet_tests::{cluster, pki::Authority};

/// Beginning of a token; the rest is the number of the cluster.
const TOKEN: &str = "user-cluster-";

/// The running servers; they stop when dropped.
pub(crate) struct Servers {
    address: SocketAddr,
    ca: String,
    _runtime: Runtime,
}

/// A body: a text, and for a watch nothing more, without an end.
struct Reply {
    text: Option<Bytes>,
    is_watch: bool,
}

impl Servers {
    /// Starts them. Each cluster has so many Nodes.
    pub(crate) fn start(nodes: usize) -> Result<Self> {
        let authority = Authority::new("user clusters")?;
        let runtime = Runtime::new().context("runtime")?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (chain, key) = authority.server("user clusters", address.ip())?.der();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, acceptor.clone(), nodes));
            }
        });
        Ok(Self {
            address,
            ca: authority.pem(),
            _runtime: runtime,
        })
    }

    /// The kubeconfig of a cluster.
    pub(crate) fn kubeconfig(&self, number: usize) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": {
                "server": format!("https://{}", self.address),
                "certificate-authority-data": STANDARD.encode(&self.ca),
            } }],
            "users": [{ "name": "u", "user": { "token": format!("{TOKEN}{number}") } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        config.to_string()
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, nodes: usize) {
    // The collector sees whatever breaks a connection.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| async move { Ok::<_, Infallible>(answer(&request, nodes)) });
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    served.await.ok();
}

fn answer(request: &Request<Incoming>, nodes: usize) -> Response<Reply> {
    let token = request.headers().get(hyper::header::AUTHORIZATION);
    let number: Option<usize> = token
        .and_then(|token| token.to_str().ok())
        .and_then(|token| token.strip_prefix("Bearer ")?.strip_prefix(TOKEN)?.parse().ok());
    let query = request.uri().query().unwrap_or_default();
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let limit: Option<usize> = parameter("limit").and_then(|limit| limit.parse().ok());
    let shown = 0..nodes.min(limit.unwrap_or(nodes));
    let is_watch = matches!(parameter("watch"), Some("true" | "1"));
    let items: Vec<Value> = match (number, request.uri().path()) {
        (None, _) => return status(StatusCode::UNAUTHORIZED),
        (Some(_), "/api/v1/nodes") if is_watch => Vec::new(),
        (Some(number), "/api/v1/nodes") => shown.map(|node| node_of(number, node)).collect(),
        (Some(number), "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases") => {
            shown.map(|node| lease_of(number, node)).collect()
        }
        _ => return status(StatusCode::NOT_FOUND),
    };
    let list = json!({
        "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items,
    });
    Response::new(Reply {
        text: (!is_watch).then(|| list.to_string().into()),
        is_watch,
    })
}

fn status(code: StatusCode) -> Response<Reply> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "", "code": code.as_u16(),
    });
    let mut response = Response::new(Reply {
        text: Some(body.to_string().into()),
        is_watch: false,
    });
    *response.status_mut() = code;
    response
}

fn name(cluster: usize, node: usize) -> String {
    format!("worker-{cluster}-{node}")
}

/// A Node of a cluster, with a UID of its own: clusters with the same Nodes are refused.
fn node_of(cluster: usize, node: usize) -> Value {
    let name = name(cluster, node);
    let labels = [("node.kubernetes.io/instance-type", "kubevirt")];
    let object = cluster::user_node(&name, &format!("kubevirt://{name}"), &["10.0.0.1"], &labels);
    object
        .with("/metadata/uid", format!("uid-{name}"))
        .with("/metadata/resourceVersion", "1")
        .0
}

fn lease_of(cluster: usize, node: usize) -> Value {
    json!({
        "metadata": { "name": name(cluster, node) },
        "spec": { "renewTime": jiff::Timestamp::now().to_string(), "leaseDurationSeconds": 40 },
    })
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.text.take() {
            Some(text) => Poll::Ready(Some(Ok(Frame::data(text)))),
            None if self.is_watch => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}
