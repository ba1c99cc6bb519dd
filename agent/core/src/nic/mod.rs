//! Queues of network interfaces: from what was seen and what is asked for to what is done, as values.

pub mod state;
