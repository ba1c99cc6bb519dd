//! What the kernel of these tests answers to `ClockCalls`.

use nix::errno::Errno;
use virtfleet_agent_host::{ClockCalls, ClockState};

use crate::exposition::world::FakeKernel;

impl ClockCalls for FakeKernel {
    fn clock_state(&self) -> Result<ClockState, Errno> {
        Ok(ClockState {
            synchronised: true,
            offset: -0.000_042,
            frequency: 1.000_012,
            largest_error: 0.0035,
            estimated_error: 0.0001,
            status: 0x2001,
            constant: 7.0,
            tick: 0.01,
            tai_offset: 37,
            ..ClockState::default()
        })
    }
}
