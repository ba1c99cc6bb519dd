//! Pulls one VM: dial, report, metrics, within one deadline.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use virtfleet_collector_core::{
    dial::DialTarget,
    pull_result::{Answer, Failure, FailureClass, FailurePoint, PeerCertificateState},
    report::KeptReport,
};
use virtfleet_runtime::tls::ClientTls;
use virtfleet_wire::{exposition::parse_line, report::ReportError};

use super::{
    body,
    connection::{AgentConnection, AgentDialler},
    peer::PeerPolicy,
    summary::Summary,
    transport::OpenError,
};
use crate::mla::PageFeed;

#[derive(Debug, Clone, Copy)]
pub struct PullLimits {
    /// Maximum time, from the dial to the last byte.
    pub timeout: Duration,
    /// Maximum bytes of a report.
    pub report_bytes: usize,
    /// Maximum bytes of a metrics page.
    pub metrics_bytes: usize,
}

/// Client that pulls agents; clones share the TLS configuration.
#[derive(Debug, Clone)]
pub struct Puller {
    pub(super) dialler: AgentDialler,
    pub(super) limits: PullLimits,
    /// Takes the pages for the streams; none without them.
    pub(super) feed: Option<Arc<PageFeed>>,
}

/// A connection kept from the last pull, if any.
pub(super) type KeptConnection = Option<AgentConnection>;

#[derive(Debug)]
pub(super) struct PullEnd {
    pub(super) outcome: Result<Answer, Failure>,
    /// The connection, after a success.
    pub(super) connection: KeptConnection,
    /// The agent's certificate is not used: another one may help.
    pub(super) rejected_certificate: bool,
    /// The connection ended before the agent answered, e.g. because the agent restarts, or because
    /// its certificate is not used any more.
    pub(super) closed_before: bool,
}

impl PullEnd {
    /// A pull that ended without an answer.
    pub(super) fn failed(failure: Failure) -> Self {
        Self {
            outcome: Err(failure),
            connection: None,
            rejected_certificate: false,
            closed_before: false,
        }
    }
}

impl Puller {
    pub fn new(tls: Arc<ClientTls>, trust_domain: &str, limits: PullLimits) -> Self {
        Self {
            dialler: AgentDialler {
                tls,
                trust_domain: trust_domain.into(),
                policy: None,
            },
            limits,
            feed: None,
        }
    }

    /// The same client that passes pages on.
    #[must_use]
    pub(crate) fn with_feed(mut self, feed: Option<Arc<PageFeed>>) -> Self {
        self.feed = feed;
        self
    }

    /// The same client that uses only certificates that `policy` accepts.
    #[must_use]
    pub(crate) fn with_policy(mut self, policy: Arc<dyn PeerPolicy>) -> Self {
        self.dialler.policy = Some(policy);
        self
    }

    /// Opens a connection to `target` and verifies its agent.
    pub(super) async fn connect(&self, target: &DialTarget) -> Result<AgentConnection, Failure> {
        let opened = self.dialler.open(target, self.limits.timeout, &mut None).await;
        opened.map_err(|error| target.way.explain(error.failure))
    }

    /// Whether the certificate of an open connection is still used.
    pub(super) fn check(&self, connection: &AgentConnection) -> Result<(), Failure> {
        let checked = self.dialler.check_connection(connection);
        checked.map_err(|error| error.failure)
    }

    /// Pulls `target` once. Reuses the connection of the previous pull if it is still open, and
    /// returns it after a success.
    pub(super) async fn pull(
        &self,
        target: &DialTarget,
        kept: KeptConnection,
        connect_timeout: Duration,
    ) -> PullEnd {
        let started = Instant::now();
        let (mut stage, mut awaited) = (PullStage::Connecting, None);
        let attempt = self.attempt(target, kept, connect_timeout, &mut stage, &mut awaited);
        let ended = tokio::time::timeout(self.limits.timeout, attempt).await;
        let ended = ended.unwrap_or_else(|_| {
            match awaited {
                Some(FailurePoint::Relay) => stage = PullStage::ConnectingToRelay,
                Some(_) if stage == PullStage::Connecting => stage = PullStage::Handshake,
                _ => {}
            }
            let message = format!(
                "no complete answer from {} within {:?}: stopped while {}",
                target.address,
                self.limits.timeout,
                stage.as_str()
            );
            Err(Failure::new(FailureClass::Timeout, message).at(awaited).into())
        });
        match ended {
            Ok((mut answer, connection)) => {
                answer.took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                PullEnd {
                    outcome: Ok(answer),
                    connection: Some(connection),
                    rejected_certificate: false,
                    closed_before: false,
                }
            }
            Err(error) => PullEnd {
                rejected_certificate: error.rejected_certificate,
                ..PullEnd::failed(target.way.explain(error.failure))
            },
        }
    }

    /// Pulls over a connection that the agent opened.
    pub(super) async fn pull_over(&self, connection: &mut AgentConnection) -> PullEnd {
        let started = Instant::now();
        let way = connection.target().way.clone();
        let mut stage = PullStage::AwaitingReport;
        let checked = self.dialler.check_connection(connection);
        let is_distrusted = checked.is_err();
        let ended = if let Err(error) = checked {
            Err(error.failure)
        } else {
            let attempt = self.request(connection, &mut stage);
            let ended = tokio::time::timeout(self.limits.timeout, attempt).await;
            ended.unwrap_or_else(|_| {
                let (timeout, stage) = (self.limits.timeout, stage.as_str());
                let message = format!("no complete answer within {timeout:?}: stopped while {stage}");
                Err(Failure::new(FailureClass::Timeout, message))
            })
        };
        match ended {
            Ok(mut answer) => {
                answer.took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                PullEnd {
                    outcome: Ok(answer),
                    connection: None,
                    rejected_certificate: false,
                    closed_before: false,
                }
            }
            Err(failure) => PullEnd {
                closed_before: is_distrusted
                    || failure.class == FailureClass::Connect && stage == PullStage::AwaitingReport,
                ..PullEnd::failed(way.explain(failure))
            },
        }
    }

    async fn attempt(
        &self,
        target: &DialTarget,
        kept: KeptConnection,
        connect_timeout: Duration,
        stage: &mut PullStage,
        awaited: &mut Option<FailurePoint>,
    ) -> Result<(Answer, AgentConnection), OpenError> {
        if let Some(mut connection) = kept.filter(|kept| self.dialler.may_use(kept)) {
            match self.request(&mut connection, stage).await {
                // An agent may close a kept connection at any time, e.g. at a restart; that is no
                // failure of the agent.
                Err(failure)
                    if failure.class == FailureClass::Connect && *stage == PullStage::AwaitingReport => {}
                Err(failure) => return Err(failure.into()),
                Ok(answer) => return Ok((answer, connection)),
            }
        }
        *stage = PullStage::Connecting;
        let mut connection = self
            .dialler
            .open(target, connect_timeout.min(self.limits.timeout), awaited)
            .await?;
        let answer = self.request(&mut connection, stage).await?;
        Ok((answer, connection))
    }

    async fn request(
        &self,
        connection: &mut AgentConnection,
        stage: &mut PullStage,
    ) -> Result<Answer, Failure> {
        *stage = PullStage::AwaitingReport;
        let response = connection.get("/v1/report", self.limits.report_bytes).await?;
        *stage = PullStage::ReadingReport;
        let json = connection
            .transport()
            .read_body(response, "/v1/report", self.limits.report_bytes)
            .await?;
        let report = KeptReport::read(&json).map_err(|error| {
            let class = match error {
                ReportError::TooLarge(_) | ReportError::TooMany { .. } => FailureClass::TooLarge,
                ReportError::Malformed(_) | ReportError::Foreign { .. } => FailureClass::Malformed,
            };
            Failure::new(class, format_args!("/v1/report: {error}"))
        })?;
        drop(json);
        *stage = PullStage::AwaitingMetrics;
        let mut page = self.feed.as_ref().and_then(|feed| {
            let target = connection.target();
            feed.begin(&target.key, target.uid.as_ref())
        });
        let response = connection.get("/metrics", self.limits.metrics_bytes).await?;
        *stage = PullStage::ReadingMetrics;
        let malformed =
            |reason: String| Failure::new(FailureClass::Malformed, format_args!("/metrics: {reason}"));
        let mut summary = Summary::default();
        let read = body::pieces(
            response.into_body(),
            "/metrics",
            self.limits.metrics_bytes,
            |piece| {
                if let Some(page) = &mut page {
                    page.add_bytes(piece.len());
                }
                let taken = summary.take(piece, |line| match &mut page {
                    Some(page) => page.read(line),
                    None => parse_line(line),
                });
                taken.map_err(malformed)
            },
        )
        .await;
        read.map_err(|failure| connection.over_budget("/metrics").unwrap_or(failure))?;
        let finished = summary.finish(|line| match &mut page {
            Some(page) => page.read(line),
            None => parse_line(line),
        });
        let (metrics, counters, queues) = finished.map_err(malformed)?;
        if let (Some(feed), Some(page)) = (&self.feed, page) {
            feed.complete(page);
        }
        Ok(Answer {
            report: Box::new(report),
            metrics,
            counters,
            queues,
            took_ms: 0,
            slow: false,
            certificate: Some(PeerCertificateState {
                life: connection.peer().life,
                renewal: None,
            }),
        })
    }
}

/// Progress of a pull, for its failure message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PullStage {
    Connecting,
    ConnectingToRelay,
    Handshake,
    AwaitingReport,
    ReadingReport,
    AwaitingMetrics,
    ReadingMetrics,
}

impl PullStage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::ConnectingToRelay => "connecting to the relay",
            Self::Handshake => "waiting for the TLS handshake",
            Self::AwaitingReport => "waiting for the answer to /v1/report",
            Self::ReadingReport => "reading /v1/report",
            Self::AwaitingMetrics => "waiting for the answer to /metrics",
            Self::ReadingMetrics => "reading /metrics",
        }
    }
}
