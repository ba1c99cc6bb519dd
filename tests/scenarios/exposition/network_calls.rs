//! What the kernel of these tests answers to `NetworkCalls`.

use virtfleet_agent::host::NetworkCalls;

use crate::world::FakeKernel;

impl NetworkCalls for FakeKernel {}
