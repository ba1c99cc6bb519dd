//! A VM's page for Prometheus: dialled, verified and bounded as every pull, passed on as it comes.
//!
//! ```text
//! GET /vm/NAMESPACE/NAME/metrics ─▶ share of its tenant ─▶ connection (verified) ─▶ filter, line by line ─▶ answer
//! ```
//! Nothing is kept: a page costs a line of memory, and each is fetched on a connection of its own, so that no guest can answer
//! one request with what belongs to another.

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
    connection::Connection,
    filter::{PageFilter, PageLimits},
    lanes::Lanes,
};
use crate::fleet::Fleet;

const PATH: &str = "/metrics";

/// See the module.
#[derive(Debug)]
pub struct PageProxy {
    fleet: Arc<Fleet>,
    puller: Puller,
    lanes: Mutex<Lanes>,
    timeout: Duration,
    max_bytes: usize,
    limits: PageLimits,
    metrics: ProxyMetrics,
}

/// What a proxy allows each VM.
#[derive(Debug, Clone, Copy)]
pub struct ProxyLimits {
    /// For a page, from the wait for its turn to its last byte.
    pub timeout: Duration,
    /// Bytes of a page.
    pub bytes: usize,
    /// Samples of a page.
    pub samples: u64,
    /// Pages at once; a tenant has a quarter of them.
    pub concurrency: usize,
}

type Permits = (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>);

/// A page under way.
struct Page {
    body: Incoming,
    connection: Connection,
    filter: PageFilter,
    read: usize,
    deadline: Instant,
    vm: VmKey,
    proxy: Arc<PageProxy>,
    ended: bool,
    // Held for their drop.
    _permits: Permits,
}

impl PageProxy {
    /// A proxy for the VMs of `fleet`, with connections as `puller` makes them.
    pub fn new(fleet: Arc<Fleet>, puller: Puller, limits: ProxyLimits, metrics: ProxyMetrics) -> Self {
        Self {
            fleet,
            puller,
            lanes: Mutex::new(Lanes::new(limits.concurrency)),
            timeout: limits.timeout,
            max_bytes: limits.bytes,
            limits: PageLimits {
                samples: limits.samples,
            },
            metrics,
        }
    }

    /// The page of a VM. A page that turns out to be none, or too large, ends with an error in the middle.
    ///
    /// # Errors
    /// No page has begun: the VM cannot be dialled, is not who it should be, or does not answer with 200.
    pub async fn page(
        self: &Arc<Self>,
        vm: &VmKey,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static + use<>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let begun = timeout_at(deadline, self.begin(vm, deadline)).await;
        let begun = begun.unwrap_or_else(|_| {
            let message = format!("{vm} gave no page within {:?}", self.timeout);
            Err(Failure::new(FailureClass::Timeout, message))
        });
        match begun {
            Ok(page) => Ok(futures_util::stream::unfold(page, Page::next)),
            Err(failure) => {
                self.metrics.ended(Err(failure.class));
                Err(failure)
            }
        }
    }

    async fn begin(self: &Arc<Self>, vm: &VmKey, deadline: Instant) -> Result<Page, Failure> {
        let target = self.fleet.dial(vm)?;
        let place = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            lanes.place(self.fleet.budget_owner(vm), false)
        };
        let permits = place.take().await;
        let mut connection = self.puller.connect(&target).await?;
        let answer = connection.get(PATH, self.max_bytes).await?;
        Ok(Page {
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

impl Page {
    /// The next piece that may go on, and the rest.
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
                tracing::debug!(vm = %self.vm, class = failure.class.as_str(), "page cut: {}", failure.message());
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
