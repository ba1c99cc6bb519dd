//! A complete response body with its content type.

use axum::{
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use serde::Serialize;
use virtfleet_wire::exposition::{self, Page};

use super::error::{ApiError, ErrorBody, ErrorDetail};

pub(super) const PEM_CONTENT_TYPE: &str = "application/pem-certificate-chain";

/// A body with its content type, for status 200.
#[derive(Debug)]
pub(super) struct Reply {
    content_type: &'static str,
    body: Vec<u8>,
}

impl Reply {
    /// `application/json` without parameters, as Prometheus' http_sd requires.
    pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, ApiError> {
        match serde_json::to_vec(value) {
            Ok(body) => Ok(Self {
                content_type: "application/json",
                body,
            }),
            Err(error) => Err(ApiError::internal(format!(
                "the response cannot be encoded as JSON: {error}"
            ))),
        }
    }

    pub(super) fn text(text: String) -> Self {
        Self {
            content_type: "text/plain; charset=utf-8",
            body: text.into_bytes(),
        }
    }

    /// Certificates in PEM (RFC 8555, 9.1).
    pub(super) fn pem(text: String) -> Self {
        Self {
            content_type: PEM_CONTENT_TYPE,
            body: text.into_bytes(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.body
    }

    pub(super) fn page(page: &Page) -> Self {
        Self {
            content_type: exposition::CONTENT_TYPE,
            body: page.as_bytes().to_vec(),
        }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = self.body.into_response();
        let content_type = HeaderValue::from_static(self.content_type);
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: ErrorDetail {
                code: self.code.to_owned(),
                message: self.message,
                remedy: self.remedy,
            },
        };
        let mut response = match Reply::json(&body) {
            Ok(reply) => reply.into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        };
        *response.status_mut() = self.status;
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"virtfleet\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::access::AccessError;

    #[test]
    fn too_many_requests_are_answered_with_a_pause() {
        let wait = Duration::from_millis(1200);
        let response = ApiError::from(AccessError::TooManyRequests { wait }).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        let other = ApiError::not_synced().into_response();
        assert!(!other.headers().contains_key(RETRY_AFTER));
    }
}
