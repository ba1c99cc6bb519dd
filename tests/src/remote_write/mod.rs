//! Remote write from both sides: pages become requests as a small sender makes them, and a receiver
//! records what it gets and answers as a test says. Benchmarks have a receiver that only counts.
//! Beside them the real chain of KKP: its gateway and Cortex.

mod cortex;
mod counter;
mod gateway;
mod page_sender;
mod recorder;

pub use cortex::Cortex;
pub use counter::{CountedRequest, Counter};
pub use gateway::MlaGateway;
pub use page_sender::PageSender;
pub use recorder::{Recorded, Recorder, Reply};
