//! Copies bytes between two connections, both ways, until both ends are closed or nothing moves.
//!
//! A side that ends its sending (half-close) ends that direction only. A slow receiver slows the
//! sender: nothing is kept but one buffer for each direction.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes},
    time::{Instant, sleep_until},
};

use super::stop::{DRAIN_IDLE, RelayStop};

/// Buffer of each direction of each connection.
const BUFFER_BYTES: usize = 4096;

/// Why copying ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BridgeEnd {
    /// Both sides ended.
    Closed,
    /// A side failed, e.g. with a reset.
    Broken,
    /// No byte moved for too long.
    Idle,
    Stopped,
}

/// Time of the last byte that moved in either direction.
#[derive(Debug)]
struct Activity {
    start: Instant,
    last_ms: AtomicU64,
}

impl Activity {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            last_ms: AtomicU64::new(0),
        })
    }

    fn touch(&self) {
        let since = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(since, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }

    /// Returns when no byte has moved for `limit`.
    async fn idle(&self, limit: Duration) {
        loop {
            let last = self.last();
            sleep_until(last + limit).await;
            if self.last() == last {
                return;
            }
        }
    }
}

/// A stream whose traffic counts as activity.
struct Watched<S> {
    inner: S,
    activity: Arc<Activity>,
    received: Counter,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        if read > 0 {
            self.activity.touch();
            self.received.inc_by(read as u64);
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        if matches!(poll, Poll::Ready(Ok(1..))) {
            self.activity.touch();
        }
        poll
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

pub(super) struct BridgeSide<S> {
    pub(super) stream: S,
    /// Counts the bytes that this side sends.
    pub(super) received: Counter,
}

/// Copies until the end. `idle` is the maximum time without a byte in either direction.
pub(super) async fn bridge<A, B>(
    a: BridgeSide<A>,
    b: BridgeSide<B>,
    idle: Duration,
    stop: &RelayStop,
) -> BridgeEnd
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let activity = Activity::new();
    let mut a = watched(a, &activity);
    let mut b = watched(b, &activity);
    let drained = async {
        stop.drain.cancelled().await;
        activity.idle(DRAIN_IDLE).await;
    };
    tokio::select! {
        biased;
        ended = copy_bidirectional_with_sizes(&mut a, &mut b, BUFFER_BYTES, BUFFER_BYTES) => match ended {
            Ok(_) => BridgeEnd::Closed,
            Err(_) => BridgeEnd::Broken,
        },
        () = stop.cut.cancelled() => BridgeEnd::Stopped,
        () = drained => BridgeEnd::Stopped,
        () = activity.idle(idle) => BridgeEnd::Idle,
    }
}

fn watched<S>(side: BridgeSide<S>, activity: &Arc<Activity>) -> Watched<S> {
    Watched {
        inner: side.stream,
        activity: Arc::clone(activity),
        received: side.received,
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        task::JoinHandle,
        time::sleep,
    };

    use super::*;

    const IDLE: Duration = Duration::from_mins(1);
    const JUST_BEFORE_IDLE: Duration = Duration::from_secs(59);

    /// A bridge, the two ends beyond it, and the counter of bytes from the first.
    fn start(stop: &RelayStop) -> (DuplexStream, DuplexStream, JoinHandle<BridgeEnd>, Counter) {
        let (near, a) = duplex(64);
        let (b, far) = duplex(64);
        let received = Counter::default();
        let side = |stream, received| BridgeSide { stream, received };
        let (a, b, stop) = (
            side(a, received.clone()),
            side(b, Counter::default()),
            stop.clone(),
        );
        let task = tokio::spawn(async move { bridge(a, b, IDLE, &stop).await });
        (near, far, task, received)
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_ended_still_receives() {
        let (mut near, mut far, task, received) = start(&RelayStop::default());
        near.write_all(b"request").await.unwrap();
        near.shutdown().await.unwrap();
        let mut got = String::new();
        far.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "request");
        far.write_all(b"answer").await.unwrap();
        drop(far);
        got.clear();
        near.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "answer");
        assert_eq!(task.await.unwrap(), BridgeEnd::Closed);
        assert_eq!(received.get(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_connection_without_traffic_is_idle() {
        let (mut near, mut far, task, _) = start(&RelayStop::default());
        let start = Instant::now();
        for _ in 0..5 {
            sleep(JUST_BEFORE_IDLE).await;
            near.write_all(b"x").await.unwrap();
            far.read_exact(&mut [0]).await.unwrap();
        }
        assert!(!task.is_finished());
        assert_eq!(task.await.unwrap(), BridgeEnd::Idle);
        assert!(start.elapsed() < IDLE * 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_stops_reading_stops_the_sender() {
        let (mut near, _far, task, received) = start(&RelayStop::default());
        let sent = tokio::spawn(async move { near.write_all(&vec![0; 1024 * 1024]).await });
        assert_eq!(task.await.unwrap(), BridgeEnd::Idle);
        sent.await.unwrap().unwrap_err();
        assert!(received.get() <= (BUFFER_BYTES + 64) as u64, "{}", received.get());
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_waits_for_traffic_only() {
        let stop = RelayStop::default();
        let (mut near, mut far, task, _) = start(&stop);
        let (_idle_near, _idle_far, idle, _) = start(&stop);
        stop.drain.cancel();
        for _ in 0..10 {
            sleep(DRAIN_IDLE / 2).await;
            near.write_all(b"x").await.unwrap();
            far.read_exact(&mut [0]).await.unwrap();
        }
        assert!(idle.is_finished() && !task.is_finished());
        stop.cut.cancel();
        assert_eq!(task.await.unwrap(), BridgeEnd::Stopped);
    }
}
