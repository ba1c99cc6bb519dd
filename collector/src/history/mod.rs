//! Reads histories that are longer than the collector's memory from a server with the query API of
//! Prometheus, when somebody requests one. Nothing is kept.
//!
//! ```text
//! request ─▶ plan (pure) ─▶ client ─ five queries ─▶ answers ─▶ history
//! ```

pub(crate) mod client;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use futures_util::future::try_join_all;
use tokio::{sync::Semaphore, time::timeout};
use virtfleet_collector_core::{
    longer_history::{HistoryPlan, HistoryRange, PromSeries},
    pull_result::UnixMs,
    usage_history::UsageHistoryView,
};
use virtfleet_wire::ids::VmKey;

use self::client::PrometheusClient;
use crate::config::PrometheusSettings;

/// Maximum histories that are read at the same time.
const MAX_READS: usize = 4;
/// Maximum time for which a request waits for its turn.
const MAX_WAIT: Duration = Duration::from_secs(2);

pub struct HistoryReader {
    settings: PrometheusSettings,
    now_ms: fn() -> UnixMs,
    permits: Semaphore,
}

/// Without credentials.
impl fmt::Debug for HistoryReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryReader")
            .field("url", &self.settings.url)
            .finish_non_exhaustive()
    }
}

/// Why there is no history.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HistoryError {
    /// Too many histories are read.
    Busy,
    /// The server did not answer within this time.
    Timeout(Duration),
    /// A file cannot be used, or the server refused or did not answer: why.
    Failed(String),
}

impl HistoryReader {
    pub fn new(settings: PrometheusSettings, now_ms: fn() -> UnixMs) -> Self {
        Self {
            settings,
            now_ms,
            permits: Semaphore::new(MAX_READS),
        }
    }

    /// The history of a VM until now; nothing before `created_ms`.
    pub(crate) async fn read(
        &self,
        range: HistoryRange,
        vm: &VmKey,
        created_ms: UnixMs,
    ) -> Result<UsageHistoryView, HistoryError> {
        let plan = HistoryPlan::new(range, vm, &self.settings.labels, created_ms, (self.now_ms)());
        let Ok(Ok(_permit)) = timeout(MAX_WAIT, self.permits.acquire()).await else {
            return Err(HistoryError::Busy);
        };
        let limit = self.settings.timeout.0;
        match timeout(limit, self.answers(&plan)).await {
            Ok(Ok(answers)) => Ok(plan.history(answers)),
            Ok(Err(why)) => Err(HistoryError::Failed(why)),
            Err(_) => Err(HistoryError::Timeout(limit)),
        }
    }

    async fn answers(&self, plan: &HistoryPlan) -> Result<[PromSeries; 5], String> {
        let client = PrometheusClient::connect(self.settings.clone()).await?;
        let queries = plan.queries.iter().map(|query| client.query(query, plan));
        let answers = try_join_all(queries).await?;
        <[PromSeries; 5]>::try_from(answers).map_err(|_| "an answer is missing".to_owned())
    }
}
