//! `virtfleetctl vm revoke` and `reset`, also as `virtfleetctl enrolment`.

use super::{
    client::{ApiResponse, Client},
    fail::Fail,
};
use crate::{api::EnrolmentChange, enrolment::EnrolmentAction};

/// Changes the enrolment at `path`; returns the new state.
pub(super) fn change(path: &str, action: EnrolmentAction, client: &Client) -> Result<ApiResponse, Fail> {
    let body = serde_json::to_value(EnrolmentChange { action });
    client.post(path, &body.map_err(|error| Fail::Usage(error.to_string()))?)
}
