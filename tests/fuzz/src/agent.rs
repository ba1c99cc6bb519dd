//! Two files of the agent, taken alone: to build all of it with instrumentation would take longer
//! than to fuzz them.

#[path = "../../../agent/host/src/dns/ask/message.rs"]
mod message;
#[path = "../../../agent/service/src/server/query.rs"]
mod query;

pub(crate) use message::{QueryMessage, Verdict};
pub(crate) use query::filter as filter_of_query;
