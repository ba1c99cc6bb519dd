//! What a user cluster's API server may answer: bodies, lines of a watch and error answers of bounded size. It stands under
//! kube's client, which collects whatever comes.
//!
//! The text of an error answer never passes: it is the tenant's, and behind a kubeconfig that names another service it would be
//! that service's. In its place stands what the HTTP status means.

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

/// Maximum size of a page of a list, bytes. Longer ones are asked for again in smaller pages.
pub(in crate::inventory::cluster) const MAX_ANSWER: usize = 4 << 20;
/// Maximum size of one object, as a line of a watch or as an answer, bytes. etcd takes objects of 1.5 MiB; Nodes have some tens of
/// KiB.
pub(in crate::inventory::cluster) const MAX_OBJECT: usize = 1 << 20;
/// Bytes that all user clusters' answers may hold in memory at once, while they are read.
const MAX_IN_FLIGHT: usize = 32 << 20;
/// An answer of at most this size, bytes, is read even if [`MAX_IN_FLIGHT`] is used up by others.
const ALWAYS: usize = 256 << 10;
/// An error answer of at most this size, bytes, is read and dropped, so that its connection can be used again.
const MAX_ERROR: usize = 64 << 10;
/// Maximum time for that.
const ERROR_ENDS: Duration = Duration::from_secs(1);

/// Why an answer was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::inventory::cluster) enum LimitError {
    /// An answer is longer than [`MAX_ANSWER`].
    #[error("an answer has more than {MAX_ANSWER} bytes")]
    Answer,
    /// An object is longer than [`MAX_OBJECT`].
    #[error("an object has more than {MAX_OBJECT} bytes")]
    Object,
    /// Others have used up [`MAX_IN_FLIGHT`].
    #[error("the answers of all user clusters have more than {MAX_IN_FLIGHT} bytes at this moment")]
    Busy,
}

/// Bytes of the answers that are being read, over all user clusters.
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

/// What kube's client reads: an answer within limits, or what stands in the place of an error answer.
type Answer<B> = Either<LimitedBody<B>, Full<Bytes>>;

impl<S, B> Service<Request<Body>> for LimitedClient<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    type Response = Response<Answer<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let has = |wanted: &str| query.split('&').any(|pair| pair.starts_with(wanted));
        let shape = if has("watch=true") {
            Shape::Watch
        } else if has("limit=") {
            Shape::List
        } else {
            Shape::Object
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
            // A redirect is not followed, and is no answer.
            let body = Limited::new(answer.into_body(), MAX_ERROR);
            drop(timeout(ERROR_ENDS, body.collect()).await);
            Ok(in_place_of(status))
        })
    }
}

/// The `Status` that kube makes an error of.
fn in_place_of<B>(status: StatusCode) -> Response<Answer<B>> {
    let code = status.as_u16();
    let (reason, message) = meaning(code);
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    let mut answer = Response::new(Either::Right(Full::from(body.to_string())));
    // kube takes 3xx for a success.
    *answer.status_mut() = if status.is_redirection() {
        StatusCode::BAD_GATEWAY
    } else {
        status
    };
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// What an HTTP status says, with Kubernetes' word for it (`metav1.StatusReason`).
pub(in crate::inventory::cluster) fn meaning(code: u16) -> (&'static str, &'static str) {
    match code {
        300..=399 => (
            "Unknown",
            "the server answered with a redirect, which is not followed",
        ),
        400 => ("BadRequest", "the API server takes the request for malformed"),
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
            "the API server or an admission policy refuses the change",
        ),
        429 => ("TooManyRequests", "the API server has too many requests"),
        500 => ("InternalError", "the API server failed"),
        503 => ("ServiceUnavailable", "the API server is not available"),
        504 => ("Timeout", "the API server did not answer in time"),
        _ => ("Unknown", "the API server answered with an error"),
    }
}

/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    List,
    Object,
    /// One object a line, without end.
    Watch,
}

/// A body that ends with an error when it is too long.
pub(super) struct LimitedBody<B> {
    inner: B,
    shape: Shape,
    /// Bytes of this answer, or of its present line.
    held: usize,
    budget: Arc<Budget>,
}

impl<B> LimitedBody<B> {
    fn new(inner: B, shape: Shape, budget: Arc<Budget>) -> Self {
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
            Shape::List => (MAX_ANSWER, LimitError::Answer),
            Shape::Object | Shape::Watch => (MAX_OBJECT, LimitError::Object),
        };
        if self.held > most {
            return Err(error);
        }
        if self.held > ALWAYS && all > MAX_IN_FLIGHT {
            return Err(LimitError::Busy);
        }
        Ok(())
    }

    fn release(&mut self) {
        self.budget.0.fetch_sub(self.held, Ordering::Relaxed);
        self.held = 0;
    }

    fn count(&mut self, mut data: &[u8]) -> Result<(), LimitError> {
        while self.shape == Shape::Watch
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

    fn body(shape: Shape, budget: &Arc<Budget>) -> LimitedBody<Full<Bytes>> {
        LimitedBody::new(Full::default(), shape, Arc::clone(budget))
    }

    #[test]
    fn an_answer_and_a_line_have_a_longest() {
        let budget = Arc::new(Budget::default());
        let mut answer = body(Shape::List, &budget);
        let half = vec![b'\n'; MAX_ANSWER / 2];
        assert_eq!([answer.count(&half), answer.count(&half)], [Ok(()), Ok(())]);
        assert_eq!(answer.count(b"x"), Err(LimitError::Answer));
        drop(answer);
        let mut watch = body(Shape::Watch, &budget);
        let line = vec![b'x'; MAX_OBJECT];
        for _ in 0..5 {
            watch.count(&line).unwrap();
            watch.count(b"\n{}\n").unwrap();
        }
        watch.count(&line).unwrap();
        assert_eq!(watch.count(b"x"), Err(LimitError::Object));
        drop(watch);
        let mut object = body(Shape::Object, &budget);
        object.count(&line).unwrap();
        assert_eq!(object.count(b"\n"), Err(LimitError::Object));
        drop(object);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0, "all is given back");
    }

    #[test]
    fn many_long_answers_at_once_cost_the_long_ones() {
        let budget = Arc::new(Budget::default());
        let part = vec![b'x'; MAX_ANSWER];
        let mut many: Vec<_> = (0..MAX_IN_FLIGHT / MAX_ANSWER)
            .map(|_| body(Shape::List, &budget))
            .collect();
        for one in &mut many {
            one.count(&part).unwrap();
        }
        let mut late = body(Shape::List, &budget);
        assert_eq!(late.count(&part[..=ALWAYS]), Err(LimitError::Busy));
        let mut small = body(Shape::List, &budget);
        small.count(&part[..ALWAYS]).unwrap();
        drop((many, late));
        small.count(&part[..ALWAYS]).unwrap();
    }
}
