//! Requests through the API server's proxy to the collector's Service.
//!
//! The API server removes the caller's `Authorization` and passes on all other headers, so the
//! token for the collector has a header of its own.

use http::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, Limited};
use kube::{Client, client::Body};

use super::{
    failure::{AttemptFailure, Attempted, failure},
    names::{API_PORT, COLLECTOR},
};
use crate::{
    access::TOKEN_HEADER,
    api::{ErrorBody, REVISION_HEADER},
    ctl::{
        fail::Fail,
        transport::{ApiCall, MAX_RESPONSE_BYTES, RawResponse, retry_after},
    },
};

/// The collector's Service behind an API server.
pub(super) struct ServiceProxy {
    client: Client,
    prefix: String,
}

impl ServiceProxy {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        let service = format!("https:{COLLECTOR}:{API_PORT}");
        Self {
            client,
            prefix: format!("/api/v1/namespaces/{namespace}/services/{service}/proxy"),
        }
    }

    /// Sends a request with a token for the collector.
    pub(super) async fn send(&self, call: ApiCall<'_>, token: &str) -> Attempted {
        let url = format!("{}{}", self.prefix, call.target);
        let (request, body) = match call.body {
            None => (Request::get(url), Body::empty()),
            Some(body) => (
                Request::post(url).header(CONTENT_TYPE, "application/json"),
                Body::from(body.as_bytes().to_vec()),
            ),
        };
        let request = request
            .header(ACCEPT, call.accept)
            .header(TOKEN_HEADER, format!("Bearer {token}"))
            .body(body);
        let request = request.map_err(|error| Err(Fail::Usage(error.to_string())))?;
        let response = self.client.send(request).await.map_err(|error| failure(&error))?;
        let (head, body) = response.into_parts();
        let limit = usize::try_from(MAX_RESPONSE_BYTES).unwrap_or(usize::MAX);
        let body = Limited::new(body, limit).collect().await.map_err(|error| {
            Err(Fail::Unreachable {
                server: self.prefix.clone(),
                why: error.to_string(),
            })
        })?;
        let body = body.to_bytes().to_vec();
        if !head.status.is_success() && serde_json::from_slice::<ErrorBody>(&body).is_err() {
            return Err(Ok(of_api_server(head.status, &body)));
        }
        let revision = head.headers.get(REVISION_HEADER);
        Ok(RawResponse {
            status: head.status,
            revision: revision.and_then(|value| value.to_str().ok()?.parse().ok()),
            retry_after: retry_after(&head.headers),
            body,
        })
    }
}

/// An error that the API server answers itself.
fn of_api_server(status: http::StatusCode, body: &[u8]) -> AttemptFailure {
    let answer: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = answer.as_ref().and_then(|answer| answer["message"].as_str());
    AttemptFailure(message.map_or_else(|| format!("the API server answers {status}"), str::to_owned))
}
