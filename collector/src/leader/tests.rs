use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use super::*;

const TIMING: ElectionTiming = ElectionTiming {
    lease: Duration::from_secs(15),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// A Lease shared by several candidates; each has its own connection, which can be interrupted.
#[derive(Clone, Default)]
struct SharedLease {
    lease: Arc<Mutex<Option<(LeaseRecord, u64)>>>,
    cut: Arc<AtomicBool>,
}

impl SharedLease {
    fn another_connection(&self) -> Self {
        Self {
            lease: Arc::clone(&self.lease),
            cut: Arc::default(),
        }
    }
    fn holder(&self) -> Option<String> {
        self.lease.lock().unwrap().as_ref()?.0.holder.clone()
    }
}

impl LeaseStore for SharedLease {
    type Version = u64;
    async fn read(&self) -> Result<Option<(LeaseRecord, u64)>, String> {
        if self.cut.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(self.lease.lock().unwrap().clone())
    }
    async fn write(&self, record: &LeaseRecord, over: Option<&u64>) -> Result<u64, String> {
        if self.cut.load(Ordering::Relaxed) {
            return Err("cut".into());
        }
        let mut lease = self.lease.lock().unwrap();
        let version = lease.as_ref().map(|lease| lease.1);
        if version != over.copied() {
            return Err("conflict".into());
        }
        let next = version.unwrap_or_default() + 1;
        *lease = Some((record.clone(), next));
        Ok(next)
    }
}

fn start_candidate(
    store: &SharedLease,
    who: &str,
) -> (WriteAccess, CancellationToken, tokio::task::JoinHandle<()>) {
    let stop = CancellationToken::new();
    let (candidate, write_access) =
        Candidate::new(store.clone(), "l".into(), who.into(), TIMING, Gauge::default());
    let task = tokio::spawn(candidate.run(stop.clone()));
    (write_access, stop, task)
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_clean_shutdown_hands_over_within_a_retry() {
    let lease = SharedLease::default();
    let (first, stop, task) = start_candidate(&lease, "a");
    seconds(1).await;
    let (second, ..) = start_candidate(&lease.another_connection(), "b");
    seconds(60).await;
    assert!(first.leads() && !second.leads());
    assert_eq!(first.standby(), None);
    let seen = second.standby().unwrap();
    assert_eq!(
        (seen.name.as_str(), seen.holder.as_deref()),
        ("l", Some("a")),
        "a standby names the leader"
    );
    assert_eq!(
        WriteAccess::fixed(false).standby(),
        None,
        "without election this process is authoritative"
    );
    stop.cancel();
    task.await.unwrap();
    assert!(!first.leads());
    assert_eq!(lease.holder(), None);
    seconds(3).await;
    assert!(second.leads());
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_leader_stops_before_the_next_starts() {
    let lease = SharedLease::default();
    let (first, ..) = start_candidate(&lease, "a");
    seconds(1).await;
    let (second, ..) = start_candidate(&lease.another_connection(), "b");
    seconds(30).await;
    lease.cut.store(true, Ordering::Relaxed);
    let mut alone = 0;
    for _ in 0..400 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!(first.leads() && second.leads()), "both lead");
        alone += u32::from(!first.leads() && !second.leads());
    }
    assert!(second.leads() && alone >= 20, "no leader for {alone} tenths");
}

#[tokio::test(start_paused = true)]
async fn a_standby_names_a_leader_only_for_its_term() {
    let lease = SharedLease::default();
    let (_first, ..) = start_candidate(&lease, "a");
    seconds(1).await;
    let cut_off = lease.another_connection();
    let (second, ..) = start_candidate(&cut_off, "b");
    seconds(60).await;
    let leader = || second.led_by_another().and_then(|lease| lease.holder);
    assert_eq!(leader().as_deref(), Some("a"));
    // Nothing is read any more, as from an API server that hangs. The leader may have died.
    cut_off.cut.store(true, Ordering::Relaxed);
    seconds(9).await;
    assert_eq!(leader().as_deref(), Some("a"));
    seconds(10).await;
    assert_eq!(leader(), None);
    cut_off.cut.store(false, Ordering::Relaxed);
    seconds(6).await;
    assert_eq!(leader().as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn requests_end_with_the_term_but_not_at_a_renewal() {
    let lease = SharedLease::default();
    let (write_access, ..) = start_candidate(&lease, "a");
    seconds(1).await;
    let long = write_access.within(Duration::from_secs(1), seconds(40)).await;
    assert!(long.is_some(), "renewals extend the term");
    lease.cut.store(true, Ordering::Relaxed);
    let began = now();
    let cut = write_access.within(Duration::from_secs(1), seconds(400)).await;
    assert!(cut.is_none());
    assert!(now() - began <= TIMING.renew, "before another one may lead");
    assert!(write_access.permit(Duration::ZERO).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_not_released_while_a_request_is_in_flight() {
    let lease = SharedLease::default();
    let (write_access, stop, task) = start_candidate(&lease, "a");
    seconds(1).await;
    let permit = write_access.permit(Duration::from_secs(1)).unwrap();
    stop.cancel();
    seconds(1).await;
    assert_eq!(lease.holder().as_deref(), Some("a"));
    assert!(
        write_access.permit(Duration::ZERO).is_none(),
        "and no new request starts"
    );
    drop(permit);
    task.await.unwrap();
    assert_eq!(lease.holder(), None);
}

#[test]
fn without_election_write_access_is_constant() {
    assert!(WriteAccess::fixed(true).leads() && !WriteAccess::fixed(false).leads());
}

#[tokio::test(start_paused = true)]
async fn waits_end_with_the_lead_and_with_its_loss() {
    let lease = SharedLease::default();
    let (first, stop, _task) = start_candidate(&lease, "a");
    assert!(first.until_leads().await);
    let (second, ..) = start_candidate(&lease.another_connection(), "b");
    let (began, waiting) = (now(), first.clone());
    let lost = tokio::spawn(async move { waiting.until_lost().await });
    seconds(60).await;
    assert!(!lost.is_finished(), "renewals are no loss");
    stop.cancel();
    lost.await.unwrap();
    assert!(second.until_leads().await && now() - began < Duration::from_secs(70));
    assert!(!WriteAccess::fixed(false).until_leads().await);
}

/// Changes of the lead come at any moment, and each of them wakes all who wait for one. Eight tasks
/// wait on two threads while a third one sends; a lock that is taken twice stops all of them at one
/// of these changes.
#[test]
fn who_waits_for_the_lead_never_blocks_the_election() {
    const CHANGES: usize = 20_000;
    let (tell, leadership) = watch::channel(Leadership::Standby);
    let write_access = WriteAccess {
        leadership,
        ..WriteAccess::fixed(false)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    for _ in 0..8 {
        let write_access = write_access.clone();
        runtime.spawn(async move {
            while write_access.until_leads().await {
                write_access.until_lost().await;
            }
        });
    }
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for change in 0..CHANGES {
            tell.send_replace(if change % 2 == 0 {
                Leadership::Leader { until: None }
            } else {
                Leadership::Standby
            });
            std::thread::yield_now();
        }
        done.send(()).unwrap();
    });
    let ended = ended.recv_timeout(Duration::from_mins(1));
    // Blocked threads would also block the end of the runtime.
    runtime.shutdown_background();
    assert!(ended.is_ok(), "the election is blocked");
}
