//! Service wrapper that limits the number and the duration of requests.

use std::{convert::Infallible, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, header, service::Service};
use tokio::sync::Semaphore;

use super::{RequestPeer, ServerMetrics, admission::Ticket};

/// The body of all responses.
pub(super) type Body<B> = Either<Full<Bytes>, B>;

/// A service with the limits on requests, for one connection.
#[derive(Debug, Clone)]
pub(super) struct Guarded<S> {
    /// The connection's slot.
    pub(super) ticket: Ticket,
    pub(super) service: S,
    /// Added to each request.
    pub(super) client: Arc<RequestPeer>,
    pub(super) requests: Arc<Semaphore>,
    pub(super) timeout: Duration,
    pub(super) metrics: ServerMetrics,
}

impl<S, B> Service<Request<Incoming>> for Guarded<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<Body<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.metrics.requests.inc();
        self.ticket.busy();
        let Ok(permit) = self.requests.clone().try_acquire_owned() else {
            self.metrics.busy.inc();
            self.ticket.idle();
            let answer = refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests are running; try again\n",
            );
            return Box::pin(std::future::ready(Ok(answer)));
        };
        request.extensions_mut().insert(Arc::clone(&self.client));
        let (answer, timeout, metrics) = (self.service.call(request), self.timeout, self.metrics.clone());
        let ticket = self.ticket.clone();
        Box::pin(async move {
            let result = tokio::time::timeout(timeout, answer).await;
            drop(permit);
            ticket.idle();
            match result {
                Ok(Ok(response)) => Ok(response.map(Either::Right)),
                Ok(Err(never)) => match never {},
                Err(_) => {
                    metrics.timeouts.inc();
                    Ok(refusal(
                        StatusCode::GATEWAY_TIMEOUT,
                        "the response took too long; try again\n",
                    ))
                }
            }
        })
    }
}

fn refusal<B>(status: StatusCode, text: &'static str) -> Response<Body<B>> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from_static(text.as_bytes()))));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    response
}
