//! The connection of one collector to one user cluster: a service for kube's client that passes
//! requests to the simulated API server, with delays and faults.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout_at},
};
use tower::{BoxError, Service};

use super::{
    api_server::{HttpAnswer, WatchLine, status},
    faults::{Fault, LineFault},
    world::{ApiCall, Passage, SharedWorld},
};

/// Duration of a watch, as the client requests it.
const WATCH_DURATION: Duration = Duration::from_secs(150);

/// A collector's connection to a user cluster.
#[derive(Clone)]
pub(super) struct SimConnection {
    pub(super) world: SharedWorld,
    pub(super) cluster: String,
    pub(super) collector: usize,
}

type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

impl Service<Request<Body>> for SimConnection {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connection = self.clone();
        Box::pin(async move { connection.request(request).await })
    }
}

async fn millis(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

fn answered((code, body): HttpAnswer) -> Response<AnswerBody> {
    let body = Full::from(body.to_string()).map_err(Into::into).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
    if code == 429 {
        let seconds = http::HeaderValue::from_static("1");
        answer.headers_mut().insert(http::header::RETRY_AFTER, seconds);
    }
    answer
}

impl SimConnection {
    async fn request(self, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let Some(call) = read(&parts.method, &parts.uri, &body) else {
            let text = format!("an unexpected request: {} {}", parts.method, parts.uri);
            self.world.lock().fail(text);
            return Ok(answered(status(404)));
        };
        let passage = self.world.lock().send(self.collector, &self.cluster, &call);
        match passage.fault {
            Fault::Refused => {
                millis(passage.there).await;
                return Err("connection refused".into());
            }
            Fault::Dropped => return std::future::pending().await,
            _ => {}
        }
        let (fault, back) = (passage.fault, passage.back);
        if let ApiCall::WatchNodes(from) = call {
            millis(passage.there).await;
            return match fault {
                Fault::Status(code) => Ok(answered(status(code))),
                Fault::AnswerLost => std::future::pending().await,
                _ => Ok(self.watch(from, passage.number)),
            };
        }
        // The request arrives also if the collector is killed meanwhile.
        let (sender, answer) = oneshot::channel();
        tokio::spawn(self.clone().deliver(call, passage, sender));
        let answer = answer.await?;
        if fault == Fault::AnswerLost {
            return std::future::pending().await;
        }
        millis(back).await;
        Ok(answered(answer))
    }

    async fn deliver(self, call: ApiCall, passage: Passage, sender: oneshot::Sender<HttpAnswer>) {
        millis(passage.there).await;
        let answer = self.world.lock().serve(&self.cluster, &call, &passage);
        self.world.lock().handled(passage.number);
        sender.send(answer).ok();
        if let Fault::Twice(later) = passage.fault {
            millis(later).await;
            self.world.lock().serve(&self.cluster, &call, &passage);
        }
    }

    fn watch(&self, from: u64, number: usize) -> Response<AnswerBody> {
        let mut world = self.world.lock();
        let lines = world
            .servers
            .get_mut(&self.cluster)
            .and_then(|server| server.watch(from));
        world.handled(number);
        drop(world);
        let Some(lines) = lines else {
            return answered(status(410));
        };
        let feed = WatchFeed {
            connection: self.clone(),
            lines,
            until: Instant::now() + WATCH_DURATION,
        };
        let frames = stream::unfold(feed, |mut feed| async move {
            let line = feed.next().await?;
            Some((Ok::<_, BoxError>(Frame::data(line)), feed))
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

/// The lines of one watch.
struct WatchFeed {
    connection: SimConnection,
    lines: mpsc::UnboundedReceiver<WatchLine>,
    until: Instant,
}

impl WatchFeed {
    /// The next line; none when the watch ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let (version, line) = timeout_at(self.until, self.lines.recv()).await.ok()??;
            let fault = {
                let world = &mut *self.connection.world.lock();
                let fault = world
                    .faults
                    .line(&mut world.rng, &self.connection.cluster, version);
                if let (LineFault::Missed, Some(server)) =
                    (fault, world.servers.get_mut(&self.connection.cluster))
                {
                    server.forget(version);
                }
                if !matches!(fault, LineFault::Late(..100)) {
                    let text = format!(
                        "c{} {} event {version} [{fault:?}]",
                        self.connection.collector, self.connection.cluster
                    );
                    world.note(&text);
                }
                fault
            };
            match fault {
                LineFault::Late(delay) => {
                    millis(delay).await;
                    return Some(Bytes::copy_from_slice(line.as_bytes()));
                }
                LineFault::Missed => return None,
                LineFault::Lost => {}
            }
        }
    }
}

/// The request; none if the collector never sends such a one.
fn read(method: &Method, uri: &http::Uri, body: &[u8]) -> Option<ApiCall> {
    let query = uri.query().unwrap_or_default();
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name));
    let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    Some(match (method.as_str(), path.as_slice()) {
        ("GET", ["api", "v1", "nodes"]) if value("watch=true").is_some() => {
            ApiCall::WatchNodes(value("resourceVersion=")?.parse().ok()?)
        }
        ("GET", ["api", "v1", "nodes"]) => ApiCall::ListNodes,
        ("GET", ["api", "v1", "nodes", name]) => ApiCall::GetNode((*name).to_owned()),
        ("PATCH", ["api", "v1", "nodes", name]) => ApiCall::PatchNode((*name).to_owned(), body.to_vec()),
        ("GET", ["api", "v1", "pods"]) => {
            let selector = value("fieldSelector=spec.nodeName%3D")?;
            ApiCall::ListPods(selector.split('%').next()?.to_owned())
        }
        ("GET", ["apis", "storage.k8s.io", "v1", "csinodes", name]) => {
            ApiCall::GetCsiNode((*name).to_owned())
        }
        _ => return None,
    })
}
