//! Why an enrolment failed.

use std::fmt;

use virtfleet_collector_core::{
    enrolment::EnrolmentReason,
    pull_result::{Failure, FailureClass},
};

/// Why an enrolment failed: a reason for programs and a message for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EnrolmentFailure {
    pub(super) reason: EnrolmentReason,
    pub(super) message: String,
}

impl EnrolmentFailure {
    pub(super) fn new(reason: EnrolmentReason, message: impl fmt::Display) -> Self {
        Self {
            reason,
            message: message.to_string(),
        }
    }

    /// As the failure of a pull, whose texts are bounded and escaped.
    pub(super) fn as_failure(&self) -> Failure {
        Failure::of_enrolment(self.reason, &self.message)
    }
}

impl From<Failure> for EnrolmentFailure {
    fn from(failure: Failure) -> Self {
        let reason = match failure.class {
            FailureClass::Timeout => EnrolmentReason::Timeout,
            FailureClass::Tls => EnrolmentReason::Tls,
            FailureClass::Http => EnrolmentReason::Http,
            FailureClass::TooLarge => EnrolmentReason::TooLarge,
            FailureClass::Malformed => EnrolmentReason::Malformed,
            _ => EnrolmentReason::Connect,
        };
        Self::new(reason, failure.message())
    }
}
