//! Limits on the responses of a user cluster's API server: size of bodies, of lines of a watch and
//! of error responses. Applied below kube's client, which collects whole bodies.
//!
//! The text of an error response is never passed on: it is the tenant's, or that of another service
//! that its kubeconfig names. It is replaced by a text for the HTTP status.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use http::{Request, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use kube::client::Body;
use serde_json::json;
use tokio::time::timeout;
use tower::{BoxError, Service};

/// Maximum bytes of a page of a list. Larger pages are requested again in smaller parts.
pub(in crate::inventory::cluster) const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Maximum bytes of one object, as a line of a watch or as a response. etcd accepts objects of 1.5
/// MiB; Nodes have some tens of KiB.
pub(in crate::inventory::cluster) const MAX_OBJECT_BYTES: usize = 1 << 20;
/// Maximum bytes of all user clusters' responses held in memory while they are read.
const MAX_IN_FLIGHT_BYTES: usize = 32 << 20;
/// Responses of up to this size are read even if [`MAX_IN_FLIGHT_BYTES`] is exhausted.
const ALWAYS_ALLOWED_BYTES: usize = 256 << 10;
/// Error responses of up to this size are read and dropped, so that the connection can be reused.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Maximum time to read an error response.
const ERROR_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a response was not read completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::inventory::cluster) enum LimitError {
    #[error("a response has more than {MAX_RESPONSE_BYTES} bytes")]
    Response,
    #[error("an object has more than {MAX_OBJECT_BYTES} bytes")]
    Object,
    #[error("the responses of all user clusters have more than {MAX_IN_FLIGHT_BYTES} bytes at present")]
    Busy,
}

/// Bytes of the responses being read, over all user clusters.
#[derive(Debug, Default)]
pub(in crate::inventory::cluster) struct Budget(AtomicUsize);

/// Applies the limits to a client of one user cluster.
#[derive(Clone)]
pub(super) struct LimitedClient<S> {
    inner: S,
    budget: Arc<Budget>,
}

impl<S> LimitedClient<S> {
    pub(super) fn new(inner: S, budget: Arc<Budget>) -> Self {
        Self { inner, budget }
    }
}

/// Body for kube's client: a limited response, or the replacement of an error response.
type ResponseBody<B> = Either<LimitedBody<B>, Full<Bytes>>;

impl<S, B> Service<Request<Body>> for LimitedClient<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    type Response = Response<ResponseBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let has = |wanted: &str| query.split('&').any(|pair| pair.starts_with(wanted));
        let shape = if has("watch=true") {
            BodyForm::Watch
        } else if has("limit=") {
            BodyForm::List
        } else {
            BodyForm::Object
        };
        let budget = Arc::clone(&self.budget);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into)?;
            let status = answer.status();
            if status.is_success() {
                let limit = |body| Either::Left(LimitedBody::new(body, shape, budget));
                return Ok(answer.map(limit));
            }
            // A redirect is not followed and is an error.
            let body = Limited::new(answer.into_body(), MAX_ERROR_BYTES);
            drop(timeout(ERROR_READ_TIMEOUT, body.collect()).await);
            Ok(replacement(status))
        })
    }
}

/// The `Status` from which kube builds its error.
fn replacement<B>(status: StatusCode) -> Response<ResponseBody<B>> {
    let code = status.as_u16();
    let (reason, message) = meaning(code);
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    let mut answer = Response::new(Either::Right(Full::from(body.to_string())));
    // kube treats 3xx as success.
    *answer.status_mut() = if status.is_redirection() {
        StatusCode::BAD_GATEWAY
    } else {
        status
    };
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// Message for an HTTP status, with the reason of Kubernetes (`metav1.StatusReason`).
pub(in crate::inventory::cluster) fn meaning(code: u16) -> (&'static str, &'static str) {
    match code {
        300..=399 => (
            "Unknown",
            "the server answered with a redirect, which is not followed",
        ),
        400 => ("BadRequest", "the API server considers the request malformed"),
        401 => (
            "Unauthorized",
            "the API server does not accept the kubeconfig's credentials",
        ),
        403 => ("Forbidden", "the kubeconfig's user may not do this"),
        404 => ("NotFound", "there is no such object"),
        409 => ("Conflict", "the object has changed meanwhile"),
        410 => ("Expired", "the API server has forgotten this version"),
        422 => (
            "Invalid",
            "the API server or an admission policy rejects the change",
        ),
        429 => ("TooManyRequests", "the API server has too many requests"),
        500 => ("InternalError", "the API server failed"),
        503 => ("ServiceUnavailable", "the API server is not available"),
        504 => ("Timeout", "the API server did not answer in time"),
        _ => ("Unknown", "the API server answered with an error"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyForm {
    List,
    Object,
    /// One object per line, without end.
    Watch,
}

/// A body that ends with an error if it is too large.
pub(super) struct LimitedBody<B> {
    inner: B,
    shape: BodyForm,
    /// Bytes of this response, or of its present line.
    held: usize,
    budget: Arc<Budget>,
}

impl<B> LimitedBody<B> {
    fn new(inner: B, shape: BodyForm, budget: Arc<Budget>) -> Self {
        Self {
            inner,
            shape,
            held: 0,
            budget,
        }
    }

    fn hold(&mut self, bytes: usize) -> Result<(), LimitError> {
        self.held += bytes;
        let all = self.budget.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let (most, error) = match self.shape {
            BodyForm::List => (MAX_RESPONSE_BYTES, LimitError::Response),
            BodyForm::Object | BodyForm::Watch => (MAX_OBJECT_BYTES, LimitError::Object),
        };
        if self.held > most {
            return Err(error);
        }
        if self.held > ALWAYS_ALLOWED_BYTES && all > MAX_IN_FLIGHT_BYTES {
            return Err(LimitError::Busy);
        }
        Ok(())
    }

    fn release(&mut self) {
        self.budget.0.fetch_sub(self.held, Ordering::Relaxed);
        self.held = 0;
    }

    fn count(&mut self, mut data: &[u8]) -> Result<(), LimitError> {
        while self.shape == BodyForm::Watch
            && let Some(end) = data.iter().position(|byte| *byte == b'\n')
        {
            self.hold(end)?;
            self.release();
            data.advance(end + 1);
        }
        self.hold(data.len())
    }
}

impl<B> Drop for LimitedBody<B> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<B> HttpBody for LimitedBody<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        let counted = frame.data_ref().map_or(Ok(()), |data| self.count(data));
        Poll::Ready(Some(counted.map(|()| frame).map_err(Into::into)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(shape: BodyForm, budget: &Arc<Budget>) -> LimitedBody<Full<Bytes>> {
        LimitedBody::new(Full::default(), shape, Arc::clone(budget))
    }

    #[test]
    fn responses_and_lines_have_a_maximum_size() {
        let budget = Arc::new(Budget::default());
        let mut answer = body(BodyForm::List, &budget);
        let half = vec![b'\n'; MAX_RESPONSE_BYTES / 2];
        assert_eq!([answer.count(&half), answer.count(&half)], [Ok(()), Ok(())]);
        assert_eq!(answer.count(b"x"), Err(LimitError::Response));
        drop(answer);
        let mut watch = body(BodyForm::Watch, &budget);
        let line = vec![b'x'; MAX_OBJECT_BYTES];
        for _ in 0..5 {
            watch.count(&line).unwrap();
            watch.count(b"\n{}\n").unwrap();
        }
        watch.count(&line).unwrap();
        assert_eq!(watch.count(b"x"), Err(LimitError::Object));
        drop(watch);
        let mut object = body(BodyForm::Object, &budget);
        object.count(&line).unwrap();
        assert_eq!(object.count(b"\n"), Err(LimitError::Object));
        drop(object);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0, "all bytes are released");
    }

    #[test]
    fn over_the_budget_only_large_responses_fail() {
        let budget = Arc::new(Budget::default());
        let part = vec![b'x'; MAX_RESPONSE_BYTES];
        let mut many: Vec<_> = (0..MAX_IN_FLIGHT_BYTES / MAX_RESPONSE_BYTES)
            .map(|_| body(BodyForm::List, &budget))
            .collect();
        for one in &mut many {
            one.count(&part).unwrap();
        }
        let mut late = body(BodyForm::List, &budget);
        assert_eq!(late.count(&part[..=ALWAYS_ALLOWED_BYTES]), Err(LimitError::Busy));
        let mut small = body(BodyForm::List, &budget);
        small.count(&part[..ALWAYS_ALLOWED_BYTES]).unwrap();
        drop((many, late));
        small.count(&part[..ALWAYS_ALLOWED_BYTES]).unwrap();
    }
}
