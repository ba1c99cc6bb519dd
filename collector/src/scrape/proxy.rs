//! Proxies a VM's metrics page to Prometheus: dialled, verified and limited like every pull, and
//! streamed.
//!
//! ```text
//! GET /vm/NAMESPACE/NAME/metrics ─▶ share of its tenant ─▶ connection (verified) ─▶ filter, line by line ─▶ answer
//! ```
//! Nothing is cached: a page uses memory for one line. Each page is fetched on a new connection, so
//! that a guest cannot answer a request with data for another one.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};
use virtfleet_collector_core::pull_result::{Failure, FailureClass};
use virtfleet_wire::ids::VmKey;

use super::{
    ProxyMetrics, Puller,
    concurrency::PullLimiter,
    connection::AgentConnection,
    filter::{PageFilter, PageLimits},
};
use crate::fleet::Fleet;

const PATH: &str = "/metrics";

/// Proxy for the metrics pages of agents.
#[derive(Debug)]
pub struct PageProxy {
    fleet: Arc<Fleet>,
    puller: Puller,
    limiter: Mutex<PullLimiter>,
    timeout: Duration,
    max_bytes: usize,
    limits: PageLimits,
    metrics: ProxyMetrics,
}

/// Limits of the proxy.
#[derive(Debug, Clone, Copy)]
pub struct ProxyLimits {
    /// Maximum time of a page, from waiting for a permit to its last byte.
    pub timeout: Duration,
    /// Maximum bytes of a page.
    pub bytes: usize,
    /// Maximum samples of a page.
    pub samples: u64,
    /// Maximum concurrent pages; a tenant may use a quarter of them.
    pub concurrency: usize,
}

type Permits = (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>);

/// A page being proxied.
struct ProxiedPage {
    body: Incoming,
    connection: AgentConnection,
    filter: PageFilter,
    read: usize,
    deadline: Instant,
    vm: VmKey,
    proxy: Arc<PageProxy>,
    ended: bool,
    // Released on drop.
    _permits: Permits,
}

impl PageProxy {
    /// A proxy for the VMs of `fleet`, with connections of `puller`.
    pub fn new(fleet: Arc<Fleet>, puller: Puller, limits: ProxyLimits, metrics: ProxyMetrics) -> Self {
        Self {
            fleet,
            puller,
            limiter: Mutex::new(PullLimiter::new(limits.concurrency)),
            timeout: limits.timeout,
            max_bytes: limits.bytes,
            limits: PageLimits {
                samples: limits.samples,
            },
            metrics,
        }
    }

    /// The metrics page of a VM. A page that is malformed or exceeds a limit ends with an error in
    /// the middle.
    ///
    /// # Errors
    /// Before the page starts: the VM cannot be dialled or verified, or does not answer with status
    /// 200.
    pub async fn page(
        self: &Arc<Self>,
        vm: &VmKey,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static + use<>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let started = timeout_at(deadline, self.open_page(vm, deadline)).await;
        let started = started.unwrap_or_else(|_| {
            let message = format!("{vm} sent no page within {:?}", self.timeout);
            Err(Failure::new(FailureClass::Timeout, message))
        });
        match started {
            Ok(page) => Ok(futures_util::stream::unfold(page, ProxiedPage::next)),
            Err(failure) => {
                self.metrics.ended(Err(failure.class));
                Err(failure)
            }
        }
    }

    async fn open_page(self: &Arc<Self>, vm: &VmKey, deadline: Instant) -> Result<ProxiedPage, Failure> {
        let target = self.fleet.dial(vm)?;
        let place = {
            let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
            limiter.permits(self.fleet.budget_owner(vm), false)
        };
        let permits = place.acquire().await;
        let mut connection = self.puller.connect(&target).await?;
        let answer = connection.get(PATH, self.max_bytes).await?;
        Ok(ProxiedPage {
            body: answer.into_body(),
            connection,
            filter: PageFilter::new(self.limits),
            read: 0,
            deadline,
            vm: vm.clone(),
            proxy: Arc::clone(self),
            ended: false,
            _permits: permits,
        })
    }
}

impl ProxiedPage {
    /// The next piece of the filtered page, and the remaining page.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.ended {
            return None;
        }
        let deadline = self.deadline;
        let piece = timeout_at(deadline, self.piece()).await.unwrap_or_else(|_| {
            let message = format!("{} did not end its page within {:?}", self.vm, self.proxy.timeout);
            Err(Failure::new(FailureClass::Timeout, message))
        });
        match piece {
            Ok(piece) => {
                if self.ended {
                    self.proxy.metrics.ended(Ok(()));
                }
                Some((Ok(piece), self))
            }
            Err(failure) => {
                self.ended = true;
                self.proxy.metrics.ended(Err(failure.class));
                tracing::debug!(vm = %self.vm, class = failure.class.as_str(), "page truncated: {}", failure.message());
                Some((Err(io::Error::other(failure.message().to_owned())), self))
            }
        }
    }

    /// At least one byte of the page, or its end.
    async fn piece(&mut self) -> Result<Bytes, Failure> {
        let malformed =
            |reason: String| Failure::new(FailureClass::Malformed, format_args!("{PATH}: {reason}"));
        loop {
            let Some(frame) = self.body.frame().await else {
                self.ended = true;
                return self.filter.finish().map(Bytes::from).map_err(malformed);
            };
            let frame = frame.map_err(|error| {
                self.connection.over_budget(PATH).unwrap_or_else(|| {
                    Failure::new(
                        FailureClass::Connect,
                        format_args!("the connection ended while {PATH} was read: {error}"),
                    )
                })
            })?;
            let Ok(data) = frame.into_data() else { continue };
            self.read = self.read.saturating_add(data.len());
            if self.read > self.proxy.max_bytes {
                return Err(Failure::new(
                    FailureClass::TooLarge,
                    format_args!("{PATH} has more than {} bytes", self.proxy.max_bytes),
                ));
            }
            let piece = self.filter.take(&data).map_err(malformed)?;
            if !piece.is_empty() {
                return Ok(Bytes::from(piece));
            }
        }
    }
}
