//! What the kernel of these tests answers to `ServiceCalls`.

use virtfleet_agent::host::ServiceCalls;

use crate::world::FakeKernel;

impl ServiceCalls for FakeKernel {}
