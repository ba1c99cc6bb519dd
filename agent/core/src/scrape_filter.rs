//! Filter for the collectors of a scrape by URL parameters, as in node_exporter.

/// Requested collectors among the enabled ones; empty for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// `collect[]=`: only these.
    pub collect: Vec<String>,
    /// `exclude[]=`: all except these; names that are not enabled are ignored.
    pub exclude: Vec<String>,
}

/// Invalid request; HTTP status 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("collect[] and exclude[] cannot be combined; use one of them")]
    Both,
    #[error("there is no collector {0:?}")]
    Missing(String),
    #[error("collector {0:?} is disabled on this machine; its settings or --collector.{0} enable it")]
    Disabled(String),
}

impl Filter {
    /// Whether the request includes an enabled collector.
    pub fn asks_for(&self, name: &str) -> bool {
        (self.collect.is_empty() || self.collect.iter().any(|other| other == name))
            && !self.exclude.iter().any(|other| other == name)
    }
}
