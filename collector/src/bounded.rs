//! Escapes and truncates text of other writers for logs, conditions and terminals.

pub(crate) use virtfleet_collector_core::findings::bounded;
