//! Connections that a simulated agent opens.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::net::{TcpSocket, TcpStream};
use virtfleet_agent_core::push::scheduler::{PushAction, PushScheduler};
use virtfleet_wire::settings::PushSettings;

use super::protocol::AgentState;
use crate::sim::Random;

/// Pause before each connection with [`PushPace::Quick`].
const PUSH_PAUSE: Duration = Duration::from_millis(200);
/// Then an agent that was dialled within this time opens no connection.
const PUSH_AFTER: Duration = Duration::from_secs(4);

/// A collector, or a relay, to which an agent connects.
#[derive(Debug, Clone, Copy)]
pub struct PushTo {
    /// The collector's `ingest.address`, or that of a relay.
    pub collector: SocketAddr,
    /// The address from which it connects.
    pub source: IpAddr,
    /// When it connects.
    pub pace: PushPace,
}

/// When an agent connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushPace {
    /// A moment after the end of the last connection, so that tests are short.
    Quick,
    /// As the real agent with the default settings, drawn at random from this seed. The first
    /// attempt is drawn as one after a connection.
    Real(u64),
}

/// Connects to the collector repeatedly, while no collector dials the agent.
pub(super) async fn connect<F>(push: PushTo, state: Arc<AgentState>, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()>,
{
    loop {
        tokio::time::sleep(PUSH_PAUSE).await;
        if state.is_dialled(PUSH_AFTER) {
            continue;
        }
        let Ok(stream) = dial(push).await else { continue };
        state.pushes.fetch_add(1, Ordering::Relaxed);
        let dialled = async {
            while !state.is_dialled(PUSH_AFTER) {
                tokio::time::sleep(PUSH_PAUSE).await;
            }
        };
        tokio::select! {
            () = serve(stream) => {}
            () = dialled => {}
        }
    }
}

/// Connects to the collector when the real agent would that no collector dials.
pub(super) async fn connect_as_real<F>(
    push: PushTo,
    seed: u64,
    state: Arc<AgentState>,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()>,
{
    let after = PushSettings::default().after.0;
    let start = Instant::now();
    // It has waited for a collector to dial it already.
    let now = || after + start.elapsed();
    let mut random = Random::new(seed);
    let mut draw = || u32::try_from(random.bits() >> 32).unwrap_or_default();
    let mut scheduler = PushScheduler::new(after, Duration::ZERO);
    scheduler.ended(now(), draw());
    let uses = || [&state.reports, &state.accepted].map(|count| count.load(Ordering::Relaxed));
    loop {
        if let PushAction::WaitUntil(due) = scheduler.next(now()) {
            tokio::time::sleep(due.saturating_sub(now())).await;
            continue;
        }
        let before = uses();
        if let Ok(stream) = dial(push).await {
            state.pushes.fetch_add(1, Ordering::Relaxed);
            serve(stream).await;
        }
        let [reports, accepted] = uses();
        if reports > before[0] {
            scheduler.ended(now(), draw());
        } else if accepted > before[1] {
            scheduler.enrolled(now(), draw());
        } else {
            scheduler.failed(now(), draw());
        }
    }
}

async fn dial(push: PushTo) -> std::io::Result<TcpStream> {
    let socket = if push.source.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.bind(SocketAddr::new(push.source, 0))?;
    socket.connect(push.collector).await
}
