//! The kernel and its processes: clocks, memory, tasks, filesystem usage (statfs).

pub(crate) mod clock;
pub(crate) mod clock_calls;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod passed_sockets;
pub(crate) mod processor;
pub(crate) mod tasks;
