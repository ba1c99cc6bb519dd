//! The requests of enrolment (decisions 0029 and 0034), for collectors alone.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{Method, Request, StatusCode, body::Body, header};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use virtfleet_runtime::{http::RequestPeer, tls::is_collector};
use virtfleet_wire::enrolment::{CERTIFICATE_PATH, CLAIM_PATH, EnrolmentError, MAX_BODY_BYTES, REQUEST_PATH};

use super::answer::{Answer, with_type};
use crate::enrolment::{Enrolment, EnrolmentRefusal};

#[derive(Debug, Clone, Copy)]
enum EnrolmentCall {
    Request,
    Certificate,
    Claim,
}

impl EnrolmentCall {
    fn of(path: &str) -> Option<Self> {
        match path {
            REQUEST_PATH => Some(Self::Request),
            CERTIFICATE_PATH => Some(Self::Certificate),
            CLAIM_PATH => Some(Self::Claim),
            _ => None,
        }
    }
}

/// True if `path` is one of the requests.
pub(super) fn is_enrolment(path: &str) -> bool {
    EnrolmentCall::of(path).is_some()
}

/// The body of a claim: a JSON object, for fields of later versions.
#[derive(Deserialize)]
struct EmptyObject {}

/// Answers a request of enrolment. `enrolment` is none if the settings do not ask for it.
pub(super) async fn answer<B>(enrolment: Option<&Enrolment>, request: Request<B>) -> Answer
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let Some(enrolment) = enrolment.cloned() else {
        let reason = "this agent is not enrolled by a collector; server.tls.enrolment is not set";
        return failure(StatusCode::NOT_FOUND, reason);
    };
    let peer = request.extensions().get::<Arc<RequestPeer>>();
    let names = peer.and_then(|peer| peer.names.as_deref());
    if !names.is_some_and(is_collector) {
        let reason = "only a collector may enrol this agent: its certificate needs the URI \
                      spiffe://<trust-domain>/collector";
        return failure(StatusCode::FORBIDDEN, reason);
    }
    if request.method() != Method::POST {
        let mut answer = failure(StatusCode::METHOD_NOT_ALLOWED, "only POST is allowed");
        answer
            .headers_mut()
            .insert(header::ALLOW, header::HeaderValue::from_static("POST"));
        return answer;
    }
    let Some(call) = EnrolmentCall::of(request.uri().path()) else {
        return failure(StatusCode::NOT_FOUND, "no request of enrolment");
    };
    let body = match Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let reason = format!("the body cannot be read (at most {MAX_BODY_BYTES} bytes): {error}");
            return failure(StatusCode::BAD_REQUEST, reason);
        }
    };
    // Files are written and synced: not on the thread that serves.
    let done = tokio::task::spawn_blocking(move || match call {
        EnrolmentCall::Request => {
            let answer = parsed(&body, |request| enrolment.request(&request))?;
            Ok(json(StatusCode::OK, &answer))
        }
        EnrolmentCall::Certificate => {
            parsed(&body, |issued| enrolment.accept(&issued))?;
            let mut answer = Answer::default();
            *answer.status_mut() = StatusCode::NO_CONTENT;
            Ok(answer)
        }
        EnrolmentCall::Claim => {
            let claim = parsed(&body, |_: EmptyObject| Ok(enrolment.claim()))?;
            Ok(json(StatusCode::OK, &claim))
        }
    });
    match done.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(RequestError::Malformed(error))) => {
            let reason = format!("the body is not the expected JSON: {error}");
            failure(StatusCode::BAD_REQUEST, reason)
        }
        Ok(Err(RequestError::Refused(refusal))) => refused(&refusal),
        Err(_) => failure(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the agent panicked; its log names the place",
        ),
    }
}

/// Why a request has no result.
enum RequestError {
    Malformed(serde_json::Error),
    Refused(EnrolmentRefusal),
}

/// Parses a body and calls `used`.
fn parsed<T: DeserializeOwned, R>(
    body: &[u8],
    used: impl FnOnce(T) -> Result<R, EnrolmentRefusal>,
) -> Result<R, RequestError> {
    let value = serde_json::from_slice(body).map_err(RequestError::Malformed)?;
    used(value).map_err(RequestError::Refused)
}

fn refused(refusal: &EnrolmentRefusal) -> Answer {
    let status = match refusal {
        EnrolmentRefusal::KeyReplaced => StatusCode::CONFLICT,
        EnrolmentRefusal::OtherVm { .. } => StatusCode::MISDIRECTED_REQUEST,
        EnrolmentRefusal::NotStored(_) => StatusCode::SERVICE_UNAVAILABLE,
        EnrolmentRefusal::Key(_) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    let mut answer = failure(status, refusal.to_string());
    if status == StatusCode::CONFLICT {
        // This connection presented the key before.
        answer
            .headers_mut()
            .insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    }
    answer
}

fn failure(status: StatusCode, reason: impl Into<String>) -> Answer {
    let reason = reason.into();
    json(status, &EnrolmentError { reason })
}

fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    // Strings and numbers: encoding them cannot fail.
    let body = serde_json::to_vec(value).unwrap_or_default();
    with_type(status, "application/json", body.into())
}
