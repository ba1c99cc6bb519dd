use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use super::*;

const TIMING: Timing = Timing {
    lease: Duration::from_secs(15),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// A Lease that several share; each has its own line, which can be cut.
#[derive(Clone, Default)]
struct Shared {
    lease: Arc<Mutex<Option<(Record, u64)>>>,
    cut: Arc<AtomicBool>,
}

impl Shared {
    fn another_line(&self) -> Self {
        Self {
            lease: Arc::clone(&self.lease),
            cut: Arc::default(),
        }
    }
    fn holder(&self) -> Option<String> {
        self.lease.lock().unwrap().as_ref()?.0.holder.clone()
    }
}

impl LeaseStore for Shared {
    type Version = u64;
    async fn read(&self) -> Result<Option<(Record, u64)>, String> {
        if self.cut.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(self.lease.lock().unwrap().clone())
    }
    async fn write(&self, record: &Record, over: Option<&u64>) -> Result<u64, String> {
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

fn begin(store: &Shared, who: &str) -> (Writing, CancellationToken, tokio::task::JoinHandle<()>) {
    let stop = CancellationToken::new();
    let (candidate, writing) =
        Candidate::new(store.clone(), "l".into(), who.into(), TIMING, Gauge::default());
    let task = tokio::spawn(candidate.run(stop.clone()));
    (writing, stop, task)
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_hands_over_within_a_retry() {
    let lease = Shared::default();
    let (first, stop, task) = begin(&lease, "a");
    seconds(1).await;
    let (second, ..) = begin(&lease.another_line(), "b");
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
        Writing::fixed(false).standby(),
        None,
        "without election this process is the only source"
    );
    stop.cancel();
    task.await.unwrap();
    assert!(!first.leads());
    assert_eq!(lease.holder(), None);
    seconds(3).await;
    assert!(second.leads());
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_stops_before_the_other_begins() {
    let lease = Shared::default();
    let (first, ..) = begin(&lease, "a");
    seconds(1).await;
    let (second, ..) = begin(&lease.another_line(), "b");
    seconds(30).await;
    lease.cut.store(true, Ordering::Relaxed);
    let mut alone = 0;
    for _ in 0..400 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!(first.leads() && second.leads()), "both lead");
        alone += u32::from(!first.leads() && !second.leads());
    }
    assert!(second.leads() && alone >= 20, "nobody led for {alone} tenths");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_cut_when_the_leadership_ends_and_not_by_a_renewal() {
    let lease = Shared::default();
    let (writing, ..) = begin(&lease, "a");
    seconds(1).await;
    let long = writing.within(Duration::from_secs(1), seconds(40)).await;
    assert!(long.is_some(), "renewals move the end on");
    lease.cut.store(true, Ordering::Relaxed);
    let began = now();
    let cut = writing.within(Duration::from_secs(1), seconds(400)).await;
    assert!(cut.is_none());
    assert!(now() - began <= TIMING.renew, "before another may begin");
    assert!(writing.permit(Duration::ZERO).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_not_given_up_over_a_request_that_is_on_its_way() {
    let lease = Shared::default();
    let (writing, stop, task) = begin(&lease, "a");
    seconds(1).await;
    let permit = writing.permit(Duration::from_secs(1)).unwrap();
    stop.cancel();
    seconds(1).await;
    assert_eq!(lease.holder().as_deref(), Some("a"));
    assert!(
        writing.permit(Duration::ZERO).is_none(),
        "and nothing new is begun"
    );
    drop(permit);
    task.await.unwrap();
    assert_eq!(lease.holder(), None);
}

#[test]
fn without_election_one_may_or_may_not_for_ever() {
    assert!(Writing::fixed(true).leads() && !Writing::fixed(false).leads());
}
