//! Proxies a VM's metrics page to Prometheus: dialled, verified and limited like every pull, and
//! streamed.
//!
//! ```text
//! GET /vm/NAMESPACE/NAME/metrics ─▶ share of its tenant ─▶ connection (verified) ─▶ filter, line by line ─▶ answer
//! ```
//! Nothing is cached: a page uses memory for one line. Each page is fetched on a new connection, so
//! that a guest cannot answer a request with data for another one. An agent that has connected
//! itself has one connection, which its pages and pulls use one after the other.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, future::Either};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::{
    sync::{OwnedMutexGuard, OwnedSemaphorePermit, mpsc},
    time::{Instant, timeout_at},
};
use virtfleet_collector_core::{
    mla::page_rules::SampleLimits,
    pull_result::{Failure, FailureClass},
};
use virtfleet_wire::ids::VmKey;

use super::{
    ProxyMetrics, Puller,
    concurrency::PullLimiter,
    connection::AgentConnection,
    filter::PageFilter,
    pushed::{PushedAgent, PushedAgents},
};
use crate::fleet::Fleet;

const PATH: &str = "/metrics";
/// A page waits for the agent's only connection for the timeout of a page divided by this.
const LOCK_DIVISOR: u32 = 2;

/// Proxy for the metrics pages of agents.
#[derive(Debug)]
pub struct PageProxy {
    fleet: Arc<Fleet>,
    puller: Puller,
    pushed: Arc<PushedAgents>,
    limiter: Mutex<PullLimiter>,
    timeout: Duration,
    max_bytes: usize,
    limits: SampleLimits,
    metrics: ProxyMetrics,
}

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

struct ProxiedPage {
    body: Incoming,
    connection: PageConnection,
    filter: PageFilter,
    read: usize,
    deadline: Instant,
    vm: VmKey,
    proxy: Arc<PageProxy>,
    ended: bool,
    // Released on drop.
    _permits: Permits,
}

enum PageConnection {
    /// Opened for this page.
    Own(Box<AgentConnection>),
    /// Opened by the agent; others wait until the guard is dropped.
    Pushed(OwnedMutexGuard<AgentConnection>),
}

impl PageConnection {
    fn get(&self) -> &AgentConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Pushed(connection) => connection,
        }
    }

    fn get_mut(&mut self) -> &mut AgentConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Pushed(connection) => connection,
        }
    }
}

/// Why there is no page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageError {
    /// The agent cannot be reached or verified, or does not answer.
    Agent(Failure),
    /// The agent's only connection is in use by a pull or another page. Try again later.
    Busy(VmKey),
}

impl From<Failure> for PageError {
    fn from(failure: Failure) -> Self {
        Self::Agent(failure)
    }
}

impl PageError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Agent(failure) => failure.class,
            Self::Busy(_) => FailureClass::Timeout,
        }
    }
}

type PageResult = io::Result<Bytes>;

impl PageProxy {
    /// A proxy for the VMs of `fleet`, with connections of `puller` and those that agents opened.
    pub(crate) fn new(
        fleet: Arc<Fleet>,
        puller: Puller,
        pushed: Arc<PushedAgents>,
        limits: ProxyLimits,
        metrics: ProxyMetrics,
    ) -> Self {
        Self {
            fleet,
            puller,
            pushed,
            limiter: Mutex::new(PullLimiter::new(limits.concurrency)),
            timeout: limits.timeout,
            max_bytes: limits.bytes,
            limits: SampleLimits::new(limits.samples),
            metrics,
        }
    }

    /// The metrics page of a VM. A page that is malformed or exceeds a limit ends with an error in
    /// the middle.
    ///
    /// # Errors
    /// Before the page starts: the VM cannot be dialled or verified, or does not answer with status
    /// 200; or its agent has connected itself, and that connection is in use.
    pub async fn page(
        self: &Arc<Self>,
        vm: &VmKey,
    ) -> Result<impl Stream<Item = PageResult> + Send + 'static + use<>, PageError> {
        let deadline = Instant::now() + self.timeout;
        let started = timeout_at(deadline, self.open_page(vm, deadline)).await;
        let started = started.unwrap_or_else(|_| {
            let message = format!("{vm} sent no page within {:?}", self.timeout);
            Err(Failure::new(FailureClass::Timeout, message).into())
        });
        match started {
            Ok(page) if matches!(page.connection, PageConnection::Pushed(_)) => {
                Ok(Either::Left(page.independent()))
            }
            Ok(page) => Ok(Either::Right(futures_util::stream::unfold(
                page,
                ProxiedPage::next,
            ))),
            Err(error) => {
                self.metrics.ended(Err(error.class()));
                Err(error)
            }
        }
    }

    async fn open_page(self: &Arc<Self>, vm: &VmKey, deadline: Instant) -> Result<ProxiedPage, PageError> {
        let pushed = self.pushed.current(vm, &self.fleet, Instant::now().into_std());
        let target = match &pushed {
            Some(_) => None,
            None => Some(self.fleet.read(|index| index.dial(vm))?),
        };
        let owner = self.fleet.read(|index| index.budget_owner(vm));
        let place = {
            let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
            limiter.permits(owner, false)
        };
        let permits = place.acquire().await;
        let mut connection = match (pushed, target) {
            (Some(agent), _) => PageConnection::Pushed(self.lock(vm, &agent).await?),
            (None, Some(target)) => PageConnection::Own(Box::new(self.puller.connect(&target).await?)),
            (None, None) => return Err(PageError::Busy(vm.clone())),
        };
        let answer = connection.get_mut().get(PATH, self.max_bytes).await?;
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

impl PageProxy {
    /// The connection that an agent opened, as soon as no one else uses it; at most for half of the
    /// time of a page.
    async fn lock(
        &self,
        vm: &VmKey,
        agent: &PushedAgent,
    ) -> Result<OwnedMutexGuard<AgentConnection>, PageError> {
        let locked = tokio::time::timeout(self.timeout / LOCK_DIVISOR, agent.lock()).await;
        let connection = locked.map_err(|_| PageError::Busy(vm.clone()))?;
        self.puller.check(&connection)?;
        Ok(connection)
    }
}

impl ProxiedPage {
    /// The page as a stream that a task of its own reads until the deadline: a slow client does not
    /// keep the agent's only connection for longer.
    fn independent(self) -> impl Stream<Item = PageResult> + Send + 'static {
        let (sender, receiver) = mpsc::channel(1);
        let is_read = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_read);
        tokio::spawn(async move {
            let (deadline, mut page) = (self.deadline, Some(self));
            while let Some(rest) = page.take() {
                let Some((piece, rest)) = rest.next().await else {
                    ended.store(true, Ordering::Release);
                    return;
                };
                let sent = timeout_at(deadline, sender.send(piece)).await;
                page = matches!(sent, Ok(Ok(()))).then_some(rest);
            }
        });
        futures_util::stream::unfold(Some((receiver, is_read)), |state| async move {
            let (mut receiver, is_read) = state?;
            match receiver.recv().await {
                Some(piece) => Some((piece, Some((receiver, is_read)))),
                None if is_read.load(Ordering::Acquire) => None,
                // Without an error the client would take the page for complete.
                None => Some((Err(io::Error::other("the page was read too slowly")), None)),
            }
        })
    }

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
                self.connection.get().over_budget(PATH).unwrap_or_else(|| {
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
