//! Since when a VM is as it is, as far as the collector has seen it.

use crate::{pull_result::UnixMs, view::VmState};

/// What the collector has seen of a VM's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenSince {
    state: VmState,
    has_vmi: bool,
    state_ms: UnixMs,
    runs_ms: UnixMs,
    is_first: bool,
}

/// Whether the guest has been started, and has not ended.
fn is_run(state: VmState) -> bool {
    matches!(state, VmState::Running | VmState::Migrating | VmState::Paused)
}

impl SeenSince {
    /// The state in which a VM is seen first.
    pub(crate) fn first(state: VmState, has_vmi: bool, now_ms: UnixMs) -> Self {
        Self {
            state,
            has_vmi,
            state_ms: now_ms,
            runs_ms: now_ms,
            is_first: true,
        }
    }

    pub(crate) fn then(self, state: VmState, has_vmi: bool, now_ms: UnixMs) -> Self {
        if (self.state, self.has_vmi) == (state, has_vmi) {
            return self;
        }
        let runs_on = is_run(self.state) && is_run(state);
        Self {
            state,
            has_vmi,
            state_ms: now_ms,
            runs_ms: if runs_on { self.runs_ms } else { now_ms },
            is_first: false,
        }
    }

    /// When it was first seen in this state, and with or without a VMI as now.
    pub(super) fn state_ms(self) -> UnixMs {
        self.state_ms
    }

    /// When it was first seen to run, whatever has paused or migrated it since. Of a VM that does
    /// not run, as [`SeenSince::state_ms`].
    pub(super) fn runs_ms(self) -> UnixMs {
        self.runs_ms
    }

    /// Whether it runs: it may be paused, or migrating.
    pub(super) fn is_run(self) -> bool {
        is_run(self.state)
    }

    /// Whether it has been in this state since the collector knows it, and may have been before.
    pub(super) fn is_first(self) -> bool {
        self.is_first
    }
}
