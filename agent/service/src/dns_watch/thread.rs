//! The thread of the DNS watch, and what supervises it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;
use virtfleet_agent_host::{
    Roots, clock,
    dns::{DnsChangeSource, Network, random_bytes},
};
use virtfleet_agent_state::{
    DnsHistory,
    settings::{LoadedSettings, dns::wanted},
};
use virtfleet_wire::settings::DnsManage;

use super::DnsWatch;

/// Stack of the thread, in bytes: enough for a few questions.
const STACK_BYTES: usize = 512 << 10;
/// How much later than planned a round may begin before the thread counts as hung. A round asks a
/// few questions, each with a timeout of seconds.
const MAX_DELAY: Duration = Duration::from_mins(2);

/// The thread of the DNS watch. It runs until the process ends.
#[derive(Debug)]
pub struct DnsWatchThread {
    /// Closed when the thread ends.
    ended: watch::Receiver<()>,
    next_round: Arc<NextRound>,
}

/// When the next round must have begun, in nanoseconds of the monotonic clock.
#[derive(Debug, Default)]
struct NextRound(AtomicU64);

impl NextRound {
    fn expect_within(&self, rest: Duration) {
        let latest = Duration::from_nanos(clock().monotonic_ns) + rest + MAX_DELAY;
        let latest = u64::try_from(latest.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(latest, Ordering::Relaxed);
    }

    fn is_late(&self, monotonic_ns: u64) -> bool {
        monotonic_ns > self.0.load(Ordering::Relaxed)
    }
}

/// The thread of the DNS watch has ended. It does so only when it panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the thread of the DNS watch has ended; restart virtfleet-agent, and report the panic in its log")]
pub struct DnsWatchEnded;

impl DnsWatchThread {
    /// Returns when the thread has ended.
    pub async fn ended(&self) -> DnsWatchEnded {
        let mut ended = self.ended.clone();
        // The thread sends nothing; the channel closes when the thread ends.
        while ended.changed().await.is_ok() {}
        DnsWatchEnded
    }

    /// True if the thread should have begun a round by now and has not.
    pub fn is_hung(&self) -> bool {
        self.next_round.is_late(clock().monotonic_ns)
    }
}

#[cfg(any(test, feature = "fakes"))]
impl DnsWatchThread {
    /// A thread whose next round must begin within `latest`; it ends when the sender is dropped.
    pub fn scripted(latest: Duration) -> (Self, watch::Sender<()>) {
        let (ends, ended) = watch::channel(());
        let latest = Duration::from_nanos(clock().monotonic_ns) + latest;
        let latest = u64::try_from(latest.as_nanos()).unwrap_or(u64::MAX);
        let next_round = Arc::new(NextRound(AtomicU64::new(latest)));
        (Self { ended, next_round }, ends)
    }
}

/// Starts the DNS watch; none if `dns.manage` is off. A reconcile run that is due at once is
/// requested before this returns, because the process may end soon for want of a certificate.
///
/// # Errors
/// The kernel cannot start a thread.
pub fn start(
    roots: &Roots,
    settings: &LoadedSettings,
    history: &DnsHistory,
) -> io::Result<Option<DnsWatchThread>> {
    let wanted = wanted(roots, settings);
    if wanted.asked.manage == DnsManage::Off {
        return Ok(None);
    }
    let source = DnsChangeSource::open(roots);
    let mut watch = DnsWatch::new(roots, wanted.asked, history.clone());
    watch.request(Duration::ZERO);
    let next_round = Arc::new(NextRound::default());
    next_round.expect_within(Duration::ZERO);
    let (ends, ended) = watch::channel(());
    let expected = Arc::clone(&next_round);
    std::thread::Builder::new()
        .name("dns".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // Dropped when the thread ends, also by a panic.
            let _ends = ends;
            run(watch, source, &expected);
        })?;
    Ok(Some(DnsWatchThread { ended, next_round }))
}

fn run(mut watch: DnsWatch, mut source: DnsChangeSource, next_round: &NextRound) {
    loop {
        let now = watch.now();
        next_round.expect_within(Duration::ZERO);
        watch.round(now, &Network, &mut || u64::from_ne_bytes(random_bytes()));
        let rest = watch.scheduler.time_to_next(now);
        next_round.expect_within(rest);
        let changes = source.wait(rest);
        watch.record_changes(&changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_does_not_begin_in_time_is_a_hang() {
        let next = NextRound::default();
        next.expect_within(Duration::from_mins(1));
        let now = clock().monotonic_ns;
        let after = |length: Duration| now + u64::try_from(length.as_nanos()).unwrap();
        assert!(!next.is_late(now));
        assert!(!next.is_late(after(MAX_DELAY)));
        assert!(next.is_late(after(MAX_DELAY + Duration::from_mins(2))));
    }

    #[tokio::test]
    async fn the_end_of_the_thread_is_reported() {
        let (thread, ends) = DnsWatchThread::scripted(Duration::ZERO);
        std::thread::spawn(move || {
            let _ends = ends;
            panic!("for the test");
        });
        assert_eq!(thread.ended().await, DnsWatchEnded);
    }
}
