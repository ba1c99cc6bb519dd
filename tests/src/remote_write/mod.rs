//! Remote write from both sides: pages become requests as a small sender makes them, and a receiver
//! records what it gets and answers as a test says. Benchmarks have a receiver that only counts.

mod counter;
mod page_sender;
mod recorder;

pub use counter::{CountedRequest, Counter};
pub use page_sender::PageSender;
pub use recorder::{Recorded, Recorder, Reply};
