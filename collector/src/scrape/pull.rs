//! One pull of one VM: dial, report, metrics, within one deadline.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use virtfleet_collector_core::{
    dial::DialTarget,
    pull_result::{Answer, Failure, FailureClass},
    report::KeptReport,
};
use virtfleet_runtime::tls::ClientTls;
use virtfleet_wire::report::ReportError;

use super::{
    connection::{Connection, SharedTls},
    read,
    summary::Summary,
};

/// What one pull may take.
#[derive(Debug, Clone, Copy)]
pub struct PullLimits {
    /// All of it, from the dial to the last byte.
    pub timeout: Duration,
    /// Bytes of a report.
    pub report_bytes: usize,
    /// Bytes of a metrics page.
    pub metrics_bytes: usize,
}

/// Pulls; clones share the TLS configuration.
#[derive(Debug, Clone)]
pub struct Puller {
    tls: SharedTls,
    trust_domain: Arc<str>,
    limits: PullLimits,
}

/// A connection kept from the last pull, if there is one.
pub(super) type Kept = Option<Connection>;

impl Puller {
    /// A puller for agents of one trust domain.
    pub fn new(tls: Arc<ClientTls>, trust_domain: &str, limits: PullLimits) -> Self {
        Self {
            tls,
            trust_domain: trust_domain.into(),
            limits,
        }
    }

    /// A new connection to `target`, whose agent is who it should be.
    pub(super) async fn connect(&self, target: &DialTarget) -> Result<Connection, Failure> {
        Connection::open(target, &self.tls, &self.trust_domain).await
    }

    /// Pulls `target` once. The connection of an earlier pull is used again when it is still open; after a success it is
    /// handed back.
    pub(super) async fn pull(&self, target: &DialTarget, kept: Kept) -> (Result<Answer, Failure>, Kept) {
        let begun = Instant::now();
        let mut stage = Stage::Connecting;
        match tokio::time::timeout(self.limits.timeout, self.attempt(target, kept, &mut stage)).await {
            Ok(Ok((mut answer, connection))) => {
                answer.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                (Ok(answer), Some(connection))
            }
            Ok(Err(failure)) => (Err(failure), None),
            Err(_) => {
                let message = format!(
                    "no complete answer from {} within {:?}: it was {}",
                    target.address,
                    self.limits.timeout,
                    stage.as_str()
                );
                (Err(Failure::new(FailureClass::Timeout, message)), None)
            }
        }
    }

    async fn attempt(
        &self,
        target: &DialTarget,
        kept: Kept,
        stage: &mut Stage,
    ) -> Result<(Answer, Connection), Failure> {
        if let Some(connection) = kept.filter(Connection::is_open) {
            match self.ask(connection, stage).await {
                // An agent may close a kept connection at any moment, a restart for one; that says nothing about it.
                Err(failure) if failure.class == FailureClass::Connect && *stage == Stage::AwaitingReport => {
                }
                result => return result,
            }
        }
        *stage = Stage::Connecting;
        let connection = Connection::open(target, &self.tls, &self.trust_domain).await?;
        self.ask(connection, stage).await
    }

    async fn ask(
        &self,
        mut connection: Connection,
        stage: &mut Stage,
    ) -> Result<(Answer, Connection), Failure> {
        *stage = Stage::AwaitingReport;
        let response = connection.get("/v1/report", self.limits.report_bytes).await?;
        *stage = Stage::ReadingReport;
        let mut json = Vec::new();
        let read = read::pieces(
            response.into_body(),
            "/v1/report",
            self.limits.report_bytes,
            |piece| {
                json.extend_from_slice(piece);
                Ok(())
            },
        )
        .await;
        read.map_err(|failure| connection.over_budget("/v1/report").unwrap_or(failure))?;
        let report = KeptReport::read(&json).map_err(|error| {
            let class = match error {
                ReportError::TooLarge(_) | ReportError::TooMany { .. } => FailureClass::TooLarge,
                ReportError::Malformed(_) | ReportError::Foreign { .. } => FailureClass::Malformed,
            };
            Failure::new(class, format_args!("/v1/report: {error}"))
        })?;
        drop(json);
        *stage = Stage::AwaitingMetrics;
        let response = connection.get("/metrics", self.limits.metrics_bytes).await?;
        *stage = Stage::ReadingMetrics;
        let malformed =
            |reason: String| Failure::new(FailureClass::Malformed, format_args!("/metrics: {reason}"));
        let mut summary = Summary::default();
        let read = read::pieces(
            response.into_body(),
            "/metrics",
            self.limits.metrics_bytes,
            |piece| summary.take(piece).map_err(malformed),
        )
        .await;
        read.map_err(|failure| connection.over_budget("/metrics").unwrap_or(failure))?;
        let metrics = summary.finish().map_err(malformed)?;
        Ok((
            Answer {
                report: Box::new(report),
                metrics,
                took_ms: 0,
                slow: false,
            },
            connection,
        ))
    }
}

/// How far a pull has come, for the sentence that says where it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    AwaitingReport,
    ReadingReport,
    AwaitingMetrics,
    ReadingMetrics,
}

impl Stage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::AwaitingReport => "waiting for the answer to /v1/report",
            Self::ReadingReport => "reading /v1/report",
            Self::AwaitingMetrics => "waiting for the answer to /metrics",
            Self::ReadingMetrics => "reading /metrics",
        }
    }
}
