//! Why an attempt to reach the collector failed.

use crate::ctl::{fail::Fail, transport::RawResponse};

/// Why one attempt failed, so that the next one is made.
pub(super) struct AttemptFailure(pub(super) String);

/// Result of one attempt: none if another one may work.
pub(super) type Attempted = Result<RawResponse, Result<AttemptFailure, Fail>>;

/// An error of a request to the API server: another attempt may need other rights.
pub(super) fn failure(error: &kube::Error) -> Result<AttemptFailure, Fail> {
    match error {
        kube::Error::Api(status) => Ok(AttemptFailure(status.message.clone())),
        other => Err(Fail::Unreachable {
            server: "the cluster's API server".to_owned(),
            why: with_causes(other),
        }),
    }
}

/// An error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.contains(&next_text) {
            text = format!("{text}: {next_text}");
        }
        cause = next.source();
    }
    text
}
