//! One listener of the relay: accepts connections and runs each as a task.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};
use tokio_util::task::TaskTracker;
use virtfleet_collector_core::{
    connect_rate::{ConnectRate, ConnectRates},
    dial::DialRules,
    host_port::HostPort,
};
use virtfleet_runtime::throttle::Throttle;

use crate::slots::ConnectionSlots;

use super::{
    bridge::{BridgeEnd, BridgeSide, bridge},
    connect::{self, Refused},
    forward,
    metrics::{DirectionMetrics, RelayResult},
    stop::RelayStop,
};

/// Pause after a failed accept. Out of files or memory: the connection stays in the queue, so a
/// loop without a pause would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Minimum time between two log lines about refused connections of one listener.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What a listener does with a connection.
#[derive(Debug)]
pub(super) enum RelayDirection {
    /// From collectors to VMs.
    Pull(DialRules),
    /// From VMs to the collector.
    Push(HostPort),
}

#[derive(Debug)]
pub(super) struct RelayListener {
    pub(super) direction: RelayDirection,
    pub(super) slots: Arc<ConnectionSlots>,
    /// How often one address may connect; none: not limited. To the collector all VMs have the
    /// relay's address, so without this limit one VM uses up what all may.
    pub(super) rate: Option<ConnectRate>,
    pub(super) rates: Mutex<ConnectRates>,
    pub(super) connect_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) metrics: DirectionMetrics,
    pub(super) refusals: Throttle,
    pub(super) stop: RelayStop,
}

impl RelayListener {
    /// Accepts until the relay stops. The tasks of connections are in `tasks`.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener, tasks: TaskTracker) {
        loop {
            let accepted = tokio::select! {
                () = self.stop.drain.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let Some(slot) = self.slots.take(peer.ip()) else {
                        self.refused(
                            peer,
                            RelayResult::Full,
                            "too many connections, in all or of this peer",
                        );
                        continue;
                    };
                    if !self.may_connect(peer.ip()) {
                        self.refused(peer, RelayResult::TooFast, "this peer connects too often");
                        continue;
                    }
                    let own = Arc::clone(&self);
                    tasks.spawn(async move {
                        own.metrics.open.inc();
                        own.run(stream, peer).await;
                        own.metrics.open.dec();
                        drop(slot);
                    });
                }
                Err(error) => {
                    if let Some(held) = self.refusals.pass(Instant::now()) {
                        tracing::warn!(%error, held, "cannot accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn may_connect(&self, peer: IpAddr) -> bool {
        let Some(rate) = self.rate else {
            return true;
        };
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.pass(peer, rate, Instant::now())
    }

    async fn run(&self, stream: TcpStream, peer: SocketAddr) {
        let ended = tokio::select! {
            ended = self.pass(stream, peer) => ended,
            () = self.stop.cut.cancelled() => Ok(BridgeEnd::Stopped),
        };
        match ended {
            Ok(end) => self.metrics.ended(match end {
                BridgeEnd::Closed => RelayResult::Closed,
                BridgeEnd::Broken => RelayResult::Broken,
                BridgeEnd::Idle => RelayResult::Idle,
                BridgeEnd::Stopped => RelayResult::Stopped,
            }),
            Err(Refused { result, reason }) => self.refused(peer, result, &reason),
        }
    }

    async fn pass(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<BridgeEnd, Refused> {
        drop(stream.set_nodelay(true));
        let broken = |_| Refused {
            result: RelayResult::Broken,
            reason: "the destination closed the connection at once".to_owned(),
        };
        let (vm, collector, idle_timeout) = match &self.direction {
            RelayDirection::Pull(rules) => {
                let connected =
                    connect::connect(&mut stream, rules, self.connect_timeout, &self.stop).await?;
                let mut vm = connected.stream;
                drop(vm.set_nodelay(true));
                vm.write_all(&connected.early).await.map_err(broken)?;
                (vm, stream, connected.request.idle_timeout(self.idle_timeout))
            }
            RelayDirection::Push(collector) => {
                let collector = forward::connect(collector, self.connect_timeout).await?;
                drop(collector.set_nodelay(true));
                (stream, collector, self.idle_timeout)
            }
        };
        tracing::debug!(%peer, direction = self.metrics.direction, "connected");
        let vm = BridgeSide {
            stream: vm,
            received: self.metrics.from_vms.clone(),
        };
        let collector = BridgeSide {
            stream: collector,
            received: self.metrics.from_collectors.clone(),
        };
        Ok(bridge(vm, collector, idle_timeout, &self.stop).await)
    }

    fn refused(&self, peer: SocketAddr, result: RelayResult, reason: &str) {
        self.metrics.ended(result);
        if let Some(held) = self.refusals.pass(Instant::now()) {
            tracing::warn!(%peer, direction = self.metrics.direction, held, "connection refused: {reason}");
        }
    }

    /// Limits the log lines about refused connections.
    pub(super) fn throttle() -> Throttle {
        Throttle::new(LOG_INTERVAL)
    }
}
