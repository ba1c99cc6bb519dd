//! Why a verb fails.

use virtfleet_runtime::exit::Code;

/// Why the program ends, and with which code.
pub(super) struct Failure {
    pub(super) error: anyhow::Error,
    pub(super) code: Code,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            code: Code::Failure,
        }
    }
}
