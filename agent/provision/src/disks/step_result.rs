//! Result of a step.

use crate::engine::error_chain;

/// Why a step failed, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StepError(pub(super) String);

impl<E: std::error::Error> From<E> for StepError {
    fn from(error: E) -> Self {
        Self(error_chain(error))
    }
}

impl StepError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Whether a step had to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Changed,
    Unchanged,
}
