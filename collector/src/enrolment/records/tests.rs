//! Tests of the keeper with a store in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::enrolment::{EnrolmentState, read_shard};

use super::*;
use crate::{enrolment::EnrolmentMetrics, leader::WriteAccess};

/// A store in memory that other processes may change, and that may fail.
#[derive(Clone, Default)]
struct TestStore(Arc<TestStoreState>);

#[derive(Default)]
struct TestStoreState {
    shards: Mutex<BTreeMap<usize, (String, u64)>>,
    failing: Mutex<Option<String>>,
    writes: AtomicUsize,
}

impl TestStore {
    fn fail(&self, problem: Option<&str>) {
        *self.0.failing.lock().unwrap() = problem.map(str::to_owned);
    }

    /// As another process writes.
    fn set(&self, shard: usize, json: &str) {
        let mut shards = self.0.shards.lock().unwrap();
        let version = shards.get(&shard).map_or(0, |(_, version)| *version);
        shards.insert(shard, (json.to_owned(), version + 1));
    }

    fn record(&self, vm: &VmKey) -> Option<EnrolmentRecord> {
        let shards = self.0.shards.lock().unwrap();
        let mut all = shards.values().map(|(json, _)| read_shard(json).unwrap());
        all.find_map(|mut records| records.remove(vm))
    }
}

impl RecordStore for TestStore {
    type Version = u64;

    fn shards(&self) -> usize {
        4
    }

    async fn read(&self, shard: Option<usize>) -> Result<Vec<StoredShard<u64>>, String> {
        if let Some(problem) = &*self.0.failing.lock().unwrap() {
            return Err(problem.clone());
        }
        let shards = self.0.shards.lock().unwrap();
        let numbers = (0..4).filter(|number| shard.is_none_or(|wanted| wanted == *number));
        let read = |shard| StoredShard {
            shard,
            stored: shards.get(&shard).cloned(),
        };
        Ok(numbers.map(read).collect())
    }

    async fn write(&self, shard: usize, json: String, over: Option<&u64>) -> Result<u64, RecordWriteError> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if let Some(problem) = &*self.0.failing.lock().unwrap() {
            return Err(RecordWriteError::Failed(problem.clone()));
        }
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        let mut shards = self.0.shards.lock().unwrap();
        let version = shards.get(&shard).map(|(_, version)| *version);
        if version.as_ref() != over {
            return Err(RecordWriteError::Conflict);
        }
        let next = version.unwrap_or(0) + 1;
        shards.insert(shard, (json, next));
        Ok(next)
    }
}

struct Kept {
    store: TestStore,
    book: RecordBook,
    stop: CancellationToken,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn keep(store: &TestStore, leads: bool) -> Kept {
    let metrics = EnrolmentMetrics::register(&mut Registry::default());
    let (book, keeper) = RecordKeeper::new(store.clone(), WriteAccess::fixed(leads), metrics);
    let stop = CancellationToken::new();
    tokio::spawn(keep_records(keeper, stop.clone()));
    Kept {
        store: store.clone(),
        book,
        stop,
    }
}

/// A keeper that leads and has read its store.
async fn leading() -> Kept {
    let kept = keep(&TestStore::default(), true);
    while kept.book.is_current().is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    kept
}

fn vm(number: usize) -> VmKey {
    VmKey {
        namespace: "ns".parse().unwrap(),
        name: format!("vm-{number}").parse().unwrap(),
    }
}

fn record(key: u8) -> EnrolmentRecord {
    EnrolmentRecord {
        uid: "uid".parse().unwrap(),
        key_sha256: Some(KeyFingerprint::from_bytes([key; 32])),
        serial: Some("4a".to_owned()),
        not_after: 1,
        enrolled_at: 1,
        state: EnrolmentState::Enrolled,
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_is_in_the_store_when_put_returns() {
    let kept = leading().await;
    kept.book.put(&vm(1), None, Some(record(1))).await.unwrap();
    assert_eq!(kept.store.record(&vm(1)), Some(record(1)));
    let again = keep(&kept.store, true);
    while again.book.is_current().is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(again.book.get(&vm(1)), Some(record(1)), "after a restart");
}

#[tokio::test(start_paused = true)]
async fn many_records_are_written_in_few_batches() {
    let kept = leading().await;
    let put = |number: usize| {
        let book = kept.book.clone();
        let mut new = record(0);
        new.key_sha256 = format!("{number:064x}").parse().ok();
        tokio::spawn(async move { book.put(&vm(number), None, Some(new)).await })
    };
    let puts: Vec<_> = (1..=400).map(put).collect();
    for put in puts {
        put.await.unwrap().unwrap();
    }
    let writes = kept.store.0.writes.load(Ordering::Relaxed);
    assert!(writes <= 20, "{writes} writes of 400 records");
    assert_eq!(kept.book.read().len(), 400);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_written_later() {
    let kept = leading().await;
    kept.book.put(&vm(1), None, Some(record(1))).await.unwrap();
    let mut renewed = record(1);
    renewed.not_after = 99;
    kept.book
        .put_soon(&vm(1), Some(record(1)), Some(renewed.clone()))
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(kept.book.get(&vm(1)), Some(renewed.clone()));
    assert_eq!(kept.store.record(&vm(1)), Some(record(1)));
    tokio::time::sleep(keeper::LAZY_WRITE_INTERVAL).await;
    assert_eq!(kept.store.record(&vm(1)), Some(renewed));
}

#[tokio::test(start_paused = true)]
async fn one_key_is_recorded_for_one_vm() {
    let kept = leading().await;
    let (first, second) = (kept.book.clone(), kept.book.clone());
    let (first, second) = tokio::join!(
        tokio::spawn(async move { first.put(&vm(1), None, Some(record(1))).await }),
        tokio::spawn(async move { second.put(&vm(2), None, Some(record(1))).await }),
    );
    let results = [first.unwrap(), second.unwrap()];
    assert_eq!(
        results.iter().filter(|result| result.is_ok()).count(),
        1,
        "{results:?}"
    );
    let error = results.into_iter().find_map(Result::err).unwrap();
    assert!(matches!(
        error,
        RecordError::Conflict(RecordConflict::KeyTaken(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_undone() {
    let kept = leading().await;
    kept.book.put(&vm(1), None, Some(record(1))).await.unwrap();
    kept.store.fail(Some("no space"));
    let error = kept.book.put(&vm(2), None, Some(record(2))).await.unwrap_err();
    assert_eq!(error, RecordError::Failed("no space".to_owned()));
    let error = kept.book.put(&vm(1), Some(record(1)), None).await.unwrap_err();
    assert_eq!(error, RecordError::Failed("no space".to_owned()));
    assert_eq!(
        (kept.book.get(&vm(1)), kept.book.get(&vm(2))),
        (Some(record(1)), None)
    );
    kept.store.fail(None);
    kept.book.put(&vm(2), None, Some(record(2))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_another_process_recorded_first_wins() {
    let kept = leading().await;
    kept.book.put(&vm(1), None, Some(record(1))).await.unwrap();
    // A leader whose term overlapped recorded another key of a VM of the same shard.
    let shard = kept.book.read().shard(&vm(1));
    let other = (2..1000)
        .map(vm)
        .find(|vm| kept.book.read().shard(vm) == shard)
        .unwrap();
    let mut theirs = EnrolmentRecords::new(4);
    theirs.set(&vm(1), Some(record(1)));
    theirs.set(&other, Some(record(7)));
    kept.store.set(shard, &theirs.shard_json(shard).unwrap());
    let error = kept.book.put(&other, None, Some(record(8))).await.unwrap_err();
    assert_eq!(error, RecordError::Conflict(RecordConflict::Changed));
    assert_eq!(kept.book.get(&other), Some(record(7)), "it was read again");
    assert_eq!(kept.store.record(&other), Some(record(7)));
}

#[tokio::test(start_paused = true)]
async fn an_edited_record_is_read_again_before_a_second_key_is_refused() {
    let kept = leading().await;
    kept.book.put(&vm(1), None, Some(record(1))).await.unwrap();
    let shard = kept.book.read().shard(&vm(1));
    kept.store
        .set(shard, &EnrolmentRecords::new(4).shard_json(shard).unwrap());
    kept.book.refresh(&vm(1)).await.unwrap();
    assert!(kept.book.get(&vm(1)).is_some(), "written just now");
    tokio::time::sleep(Duration::from_mins(1)).await;
    kept.book.refresh(&vm(1)).await.unwrap();
    assert_eq!(kept.book.get(&vm(1)), None);
}

#[tokio::test(start_paused = true)]
async fn broken_records_stop_enrolment_until_they_can_be_read() {
    let store = TestStore::default();
    store.set(2, "{}");
    let kept = keep(&store, true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let problem = kept.book.is_current().unwrap_err();
    assert!(problem.contains("shard 2"), "{problem}");
    let error = kept.book.put(&vm(1), None, Some(record(1))).await.unwrap_err();
    assert_eq!(error, RecordError::Failed(problem));
    store.set(2, &EnrolmentRecords::new(4).shard_json(2).unwrap());
    tokio::time::sleep(Duration::from_mins(1)).await;
    kept.book.put(&vm(1), None, Some(record(1))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_standby_reads_and_records_nothing() {
    let kept = leading().await;
    let standby = keep(&kept.store, false);
    kept.book.put(&vm(1), None, Some(record(1))).await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(standby.book.get(&vm(1)), Some(record(1)));
    let error = standby.book.put(&vm(2), None, Some(record(2))).await.unwrap_err();
    assert_eq!(
        error,
        RecordError::Failed("this collector does not lead".to_owned())
    );
}
