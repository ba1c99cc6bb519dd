//! The two requests of enrolment over one connection.

use bytes::Bytes;
use hyper::{Request, StatusCode, header};
use serde::Serialize;
use virtfleet_collector_core::enrolment::{EnrolmentReason, KeyFingerprint};
use virtfleet_wire::enrolment::{
    CERTIFICATE_PATH, CLAIM_PATH, EnrolmentAnswer, EnrolmentClaim, EnrolmentError, EnrolmentRequest,
    IssuedCertificate, MAX_BODY_BYTES, MAX_TOKEN_BYTES, REQUEST_PATH,
};

use super::failure::EnrolmentFailure;
use crate::{bounded::bounded, scrape::transport::AgentTransport};

/// Maximum characters of an agent's reason in a message.
const MAX_REASON_CHARS: usize = 200;

/// The two requests over one connection, whose peer has a known key.
#[derive(Debug)]
pub(super) struct EnrolmentChannel<'a> {
    transport: &'a mut AgentTransport,
    key: KeyFingerprint,
}

#[derive(Debug)]
pub(super) enum CsrAnswer {
    Csr(Box<EnrolmentAnswer>),
    /// The agent has replaced its key: it serves a new connection with another one.
    KeyReplaced,
}

impl<'a> EnrolmentChannel<'a> {
    /// The requests over `transport`, whose peer has proved that it has `key`.
    pub(super) fn new(transport: &'a mut AgentTransport, key: KeyFingerprint) -> Self {
        Self { transport, key }
    }

    pub(super) fn key(&self) -> KeyFingerprint {
        self.key
    }

    /// Asks which VM the agent says it is, and for its join token.
    pub(super) async fn claim(&mut self) -> Result<EnrolmentClaim, EnrolmentFailure> {
        let malformed = |why: &dyn std::fmt::Display| {
            EnrolmentFailure::new(EnrolmentReason::Malformed, format!("{CLAIM_PATH} answered {why}"))
        };
        let (status, body) = self.post(CLAIM_PATH, &serde_json::json!({})).await?;
        if status != StatusCode::OK {
            return Err(self.refused(CLAIM_PATH, status, &body));
        }
        // The error of the parser could contain a part of the token.
        let claim: EnrolmentClaim =
            serde_json::from_slice(&body).map_err(|_| malformed(&"no claim with evidence"))?;
        match &claim.token {
            Some(token) if token.len() > MAX_TOKEN_BYTES => Err(malformed(&"a token that is too long")),
            _ => Ok(claim),
        }
    }

    pub(super) async fn request(
        &mut self,
        request: &EnrolmentRequest,
    ) -> Result<CsrAnswer, EnrolmentFailure> {
        let (status, body) = self.post(REQUEST_PATH, request).await?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .map(|answer| CsrAnswer::Csr(Box::new(answer)))
                .map_err(|error| {
                    let message = format!("{REQUEST_PATH} answered no CSR with evidence: {error}");
                    EnrolmentFailure::new(EnrolmentReason::Malformed, message)
                }),
            StatusCode::CONFLICT => Ok(CsrAnswer::KeyReplaced),
            status => Err(self.refused(REQUEST_PATH, status, &body)),
        }
    }

    pub(super) async fn deliver(&mut self, issued: &IssuedCertificate) -> Result<(), EnrolmentFailure> {
        let (status, body) = self.post(CERTIFICATE_PATH, issued).await?;
        match status {
            StatusCode::NO_CONTENT => Ok(()),
            StatusCode::BAD_REQUEST => Err(EnrolmentFailure::new(
                EnrolmentReason::NotAccepted,
                format!("the agent did not accept the certificate{}", reason(&body)),
            )),
            status => Err(self.refused(CERTIFICATE_PATH, status, &body)),
        }
    }

    fn refused(&self, path: &str, status: StatusCode, body: &[u8]) -> EnrolmentFailure {
        let address = self.transport.address();
        match status {
            StatusCode::MISDIRECTED_REQUEST => EnrolmentFailure::new(
                EnrolmentReason::KeyOfAnotherVm,
                format!("the agent at {address} is that of another VM{}", reason(body)),
            ),
            StatusCode::NOT_FOUND => EnrolmentFailure::new(
                EnrolmentReason::NotOffered,
                format!("the agent at {address} does not ask for enrolment in its settings"),
            ),
            status => EnrolmentFailure::new(
                EnrolmentReason::Http,
                format!("{path} at {address} answered {status}{}", reason(body)),
            ),
        }
    }

    async fn post(
        &mut self,
        path: &'static str,
        body: &impl Serialize,
    ) -> Result<(StatusCode, Vec<u8>), EnrolmentFailure> {
        let json = serde_json::to_vec(body)
            .map_err(|error| EnrolmentFailure::new(EnrolmentReason::Malformed, error))?;
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let response = self
            .transport
            .send(request, path, Bytes::from(json), MAX_BODY_BYTES)
            .await?;
        let status = response.status();
        let body = self.transport.read_body(response, path, MAX_BODY_BYTES).await?;
        Ok((status, body))
    }
}

/// The agent's reason as the end of a sentence, if it gave one.
fn reason(body: &[u8]) -> String {
    serde_json::from_slice::<EnrolmentError>(body).map_or_else(
        |_| String::new(),
        |error| format!(": {}", bounded(&error.reason, MAX_REASON_CHARS)),
    )
}
