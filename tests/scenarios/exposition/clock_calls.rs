//! What the kernel of these tests answers to `ClockCalls`.

use virtfleet_agent::host::ClockCalls;

use crate::world::FakeKernel;

impl ClockCalls for FakeKernel {}
