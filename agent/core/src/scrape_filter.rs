//! Which collectors a request asks for, as node_exporter has it.

/// Which collectors a request asks for, of those that are on. Empty: all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// `collect[]=`: only these.
    pub collect: Vec<String>,
    /// `exclude[]=`: all but these; names that are not on are passed over.
    pub exclude: Vec<String>,
}

/// A request that cannot be answered; HTTP status 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Both kinds at once.
    #[error("collect[] and exclude[] cannot be combined; use one of them")]
    Both,
    /// There is no such collector.
    #[error("there is no collector {0:?}")]
    Missing(String),
    /// The collector is off.
    #[error("collector {0:?} is disabled on this machine; its settings or --collector.{0} enable it")]
    Disabled(String),
}

impl Filter {
    /// Whether it asks for a collector that is on.
    pub fn asks_for(&self, name: &str) -> bool {
        (self.collect.is_empty() || self.collect.iter().any(|other| other == name))
            && !self.exclude.iter().any(|other| other == name)
    }
}
