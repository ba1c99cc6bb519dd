//! Why a device was not read.

use virtfleet_agent_core::disks::Doubt;

/// Builds the reason why a device cannot be read. `passing`: a later attempt may succeed.
pub(super) fn doubt(reason: String, passing: bool) -> Doubt {
    Doubt { reason, passing }
}

/// Why the thread ends early.
pub(super) enum Failure {
    CallerGone,
    Doubt(Doubt),
}
