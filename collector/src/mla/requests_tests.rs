use virtfleet_collector_core::mla::{
    SourceKey, StreamSeries, TableShare,
    memory::MemoryPool,
    relabel::CompiledRules,
    stream::{PullTime, StampLabels, TargetValues},
};
use virtfleet_wire::ids::VmKey;

use super::*;

/// A stream of one VM whose agent is silent: each page has five samples.
struct Silent {
    series: StreamSeries,
    requests: Requests,
    at_ms: i64,
}

impl Silent {
    fn new(pool: &Arc<MemoryPool>) -> Self {
        let rules = CompiledRules::new(&[]).unwrap();
        let memory = Arc::new(pool.share());
        Self {
            series: StreamSeries::new(&TableShare::default(), StampLabels::default(), rules),
            requests: Requests::new(&MlaBatchSettings::default(), memory),
            at_ms: 1_700_000_000_000,
        }
    }

    /// Finishes a request with one page.
    fn page(&mut self) {
        self.write();
        self.requests.flush();
    }

    fn write(&mut self) {
        self.at_ms += 1000;
        let source = SourceKey::Vm(VmKey {
            namespace: "ns".parse().unwrap(),
            name: "vm".parse().unwrap(),
        });
        let (none, time) = (TargetValues::default(), self.time());
        self.series.failed(&source, &none, time, &mut self.requests);
    }

    fn time(&self) -> PullTime {
        PullTime {
            at_ms: self.at_ms,
            seconds: 3.0,
        }
    }

    /// Requests in memory, and samples that were dropped.
    fn state(&self) -> (usize, u64) {
        (self.requests.finished.len(), self.requests.dropped())
    }
}

#[test]
fn the_requests_of_all_streams_together_are_bounded() {
    let mut one = Silent::new(&MemoryPool::new(usize::MAX));
    one.page();
    let size = one.requests.finished_bytes;
    let pool = MemoryPool::new(9 * size);
    let (mut greedy, mut other) = (Silent::new(&pool), Silent::new(&pool));
    for _ in 0..6 {
        greedy.page();
    }
    // Half of the memory has room for four requests.
    assert_eq!(greedy.state(), (4, 10));
    for _ in 0..2 {
        other.page();
    }
    assert_eq!(other.state(), (2, 0), "its part has room for two");
    other.page();
    assert_eq!(other.state(), (2, 5));
    greedy.page();
    assert_eq!(greedy.state(), (2, 25));
    assert!(pool.used() <= 9 * size / 2, "{} of {size}", pool.used());
    // A request counts until it is dropped.
    let taken = greedy.requests.take();
    let used = pool.used();
    drop(taken);
    assert!(pool.used() < used);
    drop((greedy, other));
    assert_eq!(pool.used(), 0);
}

#[test]
fn a_request_fits_into_the_part_of_its_stream() {
    let pool = MemoryPool::new(8 << 20);
    let size = |pool: &Arc<MemoryPool>| {
        let memory = Arc::new(pool.share());
        Requests::new(&MlaBatchSettings::default(), memory).max_bytes
    };
    assert_eq!(size(&pool), 1_000_000, "mla.batch.maxBytes");
    let others: Vec<_> = (0..9).map(|_| pool.share()).collect();
    assert_eq!(size(&pool), (4 << 20) / 10 / 4);
    let more: Vec<_> = (0..2000).map(|_| pool.share()).collect();
    assert_eq!(size(&pool), MIN_REQUEST_BYTES);
    drop((others, more));
}

#[test]
fn a_page_of_several_requests_is_kept_beside_many_streams_that_use_all_memory() {
    let pool = MemoryPool::new(MAX_REQUEST_MEMORY);
    let others: Vec<_> = (0..2000).map(|_| pool.share()).collect();
    let used = others[0].count(MAX_REQUEST_MEMORY / 2 + 1);
    let mut one = Silent::new(&pool);
    // A request is sent, and its receiver has not answered yet.
    let sent = one.requests.memory.count(2 * one.requests.max_bytes);
    for _ in 0..400 {
        if one.requests.finished.len() < 2 {
            one.write();
        }
    }
    assert_eq!(one.state(), (2, 0));
    drop((others, used, sent));
}
