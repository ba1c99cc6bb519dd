//! Routes from paths to responses.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use hyper::{Method, Request, StatusCode, body::Incoming, header, service::Service};
use virtfleet_runtime::{http::RequestPeer, tls::is_collector};
use virtfleet_wire::{
    enrolment::{CERTIFICATE_PATH, CLAIM_PATH, REQUEST_PATH},
    exposition,
};

use super::{
    Worker,
    answer::{Answer, gzipped, takes_gzip, text, with_type},
    enrolment_routes, query,
    worker::WorkerGone,
};
use crate::{
    enrolment::Enrolment,
    push::{PullWay, WayTracker},
};

const INDEX: &str = "virtfleet-agent\n\n\
    /metrics     guest metrics, text format 0.0.4; ?collect[]=NAME or ?exclude[]=NAME\n\
    /v1/report   the guest's report, JSON\n\
    /healthz     200 while the process answers\n\
    /readyz      200 once a whole scrape has succeeded\n";

const NOT_ENROLLED: &str = "this agent has no certificate yet: it waits for a collector to enrol it, and answers \
    nothing else\n";

/// A request of a collector that is noted.
#[derive(Debug, Clone, Copy)]
enum Contact {
    Pull,
    /// It begins to enrol the agent.
    Ask,
    Issue,
}

impl Contact {
    fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/report" => Some(Self::Pull),
            REQUEST_PATH | CLAIM_PATH => Some(Self::Ask),
            CERTIFICATE_PATH => Some(Self::Issue),
            _ => None,
        }
    }
}

/// The agent's HTTP service.
#[derive(Debug, Clone)]
pub struct Routes {
    worker: Worker,
    ready: Arc<AtomicBool>,
    enrolment: Option<Enrolment>,
    tracker: Option<WayTracker>,
    /// How the connections were made that these routes answer.
    way: PullWay,
}

impl Routes {
    /// Routes to a worker. `/readyz` fails until `ready` is set.
    pub fn new(worker: Worker, ready: Arc<AtomicBool>) -> Self {
        Self {
            worker,
            ready,
            enrolment: None,
            tracker: None,
            way: PullWay::Direct,
        }
    }

    /// Notes when collectors pull.
    #[must_use]
    pub fn with_tracker(mut self, tracker: WayTracker) -> Self {
        self.tracker = Some(tracker);
        self
    }

    /// The same routes, for connections that the agent opened.
    #[must_use]
    pub(crate) fn over_push(mut self) -> Self {
        self.way = PullWay::Push;
        self
    }

    /// Answers requests for enrolment. Until there is a certificate, TLS clients get nothing else.
    #[must_use]
    pub fn with_enrolment(mut self, enrolment: Option<Enrolment>) -> Self {
        self.enrolment = enrolment;
        self
    }

    /// Whether this request must wait for enrolment. A plain listener, on loopback, has no
    /// certificate to wait for.
    fn waits(&self, request: &Request<Incoming>) -> bool {
        let enrolment = self.enrolment.as_ref();
        let peer = request.extensions().get::<Arc<RequestPeer>>();
        peer.is_none_or(|peer| peer.names.is_some())
            && request.uri().path() != "/healthz"
            && enrolment.is_some_and(|enrolment| !enrolment.is_enrolled())
    }

    /// Notes that a collector reached this agent.
    fn note(&self, peer: Option<&RequestPeer>, answer: &Answer, contact: Contact) {
        let is_of_collector = |peer: &&RequestPeer| peer.names.as_deref().is_some_and(is_collector);
        if let (Some(tracker), Some(peer)) = (&self.tracker, peer.filter(is_of_collector))
            && answer.status().is_success()
        {
            match contact {
                Contact::Pull => tracker.pulled(self.way, peer.address.ip()),
                Contact::Ask => tracker.asked(peer.address.ip()),
                Contact::Issue => tracker.contacted(self.way),
            }
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Answer {
        let peer = request.extensions().get::<Arc<RequestPeer>>().cloned();
        let contact = Contact::of(request.uri().path());
        let answer = self.answer_to(request).await;
        if let Some(contact) = contact {
            self.note(peer.as_deref(), &answer, contact);
        }
        answer
    }

    async fn answer_to(&self, request: Request<Incoming>) -> Answer {
        if enrolment_routes::is_enrolment(request.uri().path()) {
            return enrolment_routes::answer(self.enrolment.as_ref(), request).await;
        }
        if self.waits(&request) {
            return text(StatusCode::FORBIDDEN, NOT_ENROLLED);
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
            answer
                .headers_mut()
                .insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        let result = match request.uri().path() {
            "/metrics" => self.metrics(&request).await,
            "/v1/report" => self.report().await,
            "/healthz" => Ok(text(StatusCode::OK, "ok\n")),
            "/readyz" if self.ready.load(Ordering::Acquire) => Ok(text(StatusCode::OK, "ready\n")),
            "/readyz" => Ok(text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the first scrape has not ended yet\n",
            )),
            "/" => Ok(text(StatusCode::OK, INDEX)),
            path => Ok(text(
                StatusCode::NOT_FOUND,
                format!("{path} is not served here\n\n{INDEX}"),
            )),
        };
        result.unwrap_or_else(|gone| text(StatusCode::INTERNAL_SERVER_ERROR, format!("{gone}\n")))
    }

    async fn metrics(&self, request: &Request<Incoming>) -> Result<Answer, WorkerGone> {
        let compress = takes_gzip(request.headers());
        let page = self
            .worker
            .metrics(query::filter(request.uri().query()), compress)
            .await?;
        Ok(match page {
            Ok(Ok(page)) => {
                let answer = with_type(StatusCode::OK, exposition::CONTENT_TYPE, page);
                if compress { gzipped(answer) } else { answer }
            }
            Ok(Err(reason)) => text(StatusCode::INTERNAL_SERVER_ERROR, reason + "\n"),
            Err(refused) => text(StatusCode::BAD_REQUEST, format!("{refused}\n")),
        })
    }

    async fn report(&self) -> Result<Answer, WorkerGone> {
        Ok(match self.worker.report().await? {
            Ok(json) => with_type(StatusCode::OK, "application/json", json),
            Err(reason) => text(StatusCode::INTERNAL_SERVER_ERROR, reason + "\n"),
        })
    }
}

impl Service<Request<Incoming>> for Routes {
    type Response = hyper::Response<http_body_util::Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let routes = self.clone();
        Box::pin(async move { Ok(routes.answer(request).await) })
    }
}
