//! Collects the samples of a stream into write requests of bounded size.
//!
//! Requests are in memory while they wait for the worker, while the queue cannot be written, and
//! while they are sent. All of them together are bounded, and each stream has its share.

use std::sync::Arc;

use virtfleet_collector_core::mla::{
    memory::{CountedMemory, MemoryShare},
    stream::{OutSeries, SampleSink},
    symbols::{SymbolId, SymbolPool},
};
use virtfleet_remote_write::request::{
    FinishedRequest, MetricKind, RequestBuilder, SeriesMeta, SymbolMemo, SymbolRef,
};
use virtfleet_wire::exposition::MetricType;

use crate::config::MlaBatchSettings;

/// Maximum bytes of the requests of all streams in memory.
pub(super) const MAX_REQUEST_MEMORY: usize = 128 << 20;
/// Maximum bytes of finished requests that wait for the worker.
const MAX_FINISHED_BYTES: usize = 32 << 20;
/// Number of requests of maximum size that fit into the part of a stream: one that is sent counts
/// twice, one was taken by the worker, and one waits for it.
const REQUESTS_PER_PART: usize = 4;
/// Maximum size of a request that is allowed however many streams there are. It fits into the parts
/// of 16,000 streams.
const MIN_REQUEST_BYTES: usize = 1 << 10;

/// A finished request in memory.
#[derive(Debug)]
pub struct HeldRequest {
    pub request: FinishedRequest,
    /// Counts its memory until it is dropped.
    pub(super) memory: CountedMemory,
}

/// Write requests, of which the last one is not finished.
#[derive(Debug)]
pub struct Requests {
    builder: RequestBuilder,
    max_samples: u32,
    /// `mla.batch.maxBytes`.
    batch_bytes: usize,
    /// Maximum bytes of the present request: several fit into the stream's part of the memory.
    max_bytes: usize,
    memory: Arc<MemoryShare>,
    finished: Vec<HeldRequest>,
    finished_bytes: usize,
    /// Samples that were dropped because memory had no room for them.
    dropped: u64,
    /// The symbol of each string of the pool with the number `pool`.
    memos: Vec<SymbolMemo>,
    pool: Option<u64>,
    /// Labels of the last sample, and their symbols in the unfinished request. Most labels of a
    /// VM's series are the same. Empty at the beginning of a request.
    last: Vec<(SymbolId, SymbolId)>,
    labels: Vec<(SymbolRef, SymbolRef)>,
    /// Samples written so far.
    samples: u64,
}

impl Requests {
    /// No request yet; `batch` bounds each, and `memory` all of them.
    pub fn new(batch: &MlaBatchSettings, memory: Arc<MemoryShare>) -> Self {
        let batch_bytes = usize::try_from(batch.max_bytes).unwrap_or(usize::MAX);
        Self {
            builder: RequestBuilder::new(),
            max_samples: batch.max_samples,
            batch_bytes,
            max_bytes: max_bytes(batch_bytes, &memory),
            memory,
            finished: Vec::new(),
            finished_bytes: 0,
            dropped: 0,
            memos: Vec::new(),
            pool: None,
            last: Vec::new(),
            labels: Vec::new(),
            samples: 0,
        }
    }

    /// Bounds requests differently from the next one on.
    pub(super) fn set_batch(&mut self, batch: &MlaBatchSettings) {
        self.max_samples = batch.max_samples;
        self.batch_bytes = usize::try_from(batch.max_bytes).unwrap_or(usize::MAX);
        self.max_bytes = max_bytes(self.batch_bytes, &self.memory);
    }

    /// Samples written so far, in all requests.
    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// Samples that were dropped because memory had no room for them.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the last request has samples.
    pub(super) fn is_pending(&self) -> bool {
        self.builder.samples() > 0
    }

    pub(super) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Finishes the last request if it has samples.
    pub(super) fn flush(&mut self) {
        if self.is_pending() {
            let request = self.builder.finish();
            self.last.clear();
            self.finished_bytes += request.body.len();
            let memory = self.memory.count(request.body.len());
            self.finished.push(HeldRequest { request, memory });
            self.max_bytes = max_bytes(self.batch_bytes, &self.memory);
        }
        let is_over = |bytes: usize, memory: &MemoryShare| bytes > MAX_FINISHED_BYTES || memory.is_over();
        while self.finished.len() > 1 && is_over(self.finished_bytes, &self.memory) {
            let oldest = self.finished.remove(0).request;
            self.finished_bytes -= oldest.body.len();
            self.dropped += u64::from(oldest.samples);
        }
    }

    /// The finished requests, oldest first.
    pub fn take(&mut self) -> Vec<HeldRequest> {
        self.finished_bytes = 0;
        std::mem::take(&mut self.finished)
    }

    fn symbol(&mut self, pool: &SymbolPool, id: SymbolId) -> SymbolRef {
        if id == SymbolId::EMPTY {
            return SymbolRef::EMPTY;
        }
        if self.memos.len() <= id.index() {
            self.memos.resize(id.index() + 1, SymbolMemo::default());
        }
        let memo = &mut self.memos[id.index()];
        self.builder.remembered_symbol(memo, pool.text(id))
    }
}

impl SampleSink for Requests {
    fn sample(&mut self, series: &OutSeries<'_>, timestamp_ms: i64, value: f64) {
        if self.pool != Some(series.symbols.number()) {
            self.memos.clear();
            self.last.clear();
            self.pool = Some(series.symbols.number());
        }
        let mut labels = std::mem::take(&mut self.labels);
        labels.resize(series.labels.len(), (SymbolRef::EMPTY, SymbolRef::EMPTY));
        for (index, (label, symbols)) in series.labels.iter().zip(&mut labels).enumerate() {
            if self.last.get(index) != Some(label) {
                *symbols = (
                    self.symbol(series.symbols, label.0),
                    self.symbol(series.symbols, label.1),
                );
            }
        }
        self.last.clear();
        self.last.extend_from_slice(series.labels);
        let meta = SeriesMeta {
            kind: series.kind.map_or(MetricKind::Unspecified, kind),
            help: self.symbol(series.symbols, series.help),
            unit: SymbolRef::EMPTY,
        };
        self.builder.series(&labels, meta, timestamp_ms, value, 0);
        self.labels = labels;
        self.samples += 1;
        if self.builder.samples() >= self.max_samples || self.builder.estimated_bytes() >= self.max_bytes {
            self.flush();
        }
    }
}

/// Maximum bytes of a request, so that the requests of all streams fit into the memory.
fn max_bytes(batch_bytes: usize, memory: &MemoryShare) -> usize {
    batch_bytes.min((memory.part() / REQUESTS_PER_PART).max(MIN_REQUEST_BYTES))
}

fn kind(kind: MetricType) -> MetricKind {
    match kind {
        MetricType::Counter => MetricKind::Counter,
        MetricType::Gauge => MetricKind::Gauge,
        MetricType::Histogram => MetricKind::Histogram,
        MetricType::Summary => MetricKind::Summary,
        MetricType::Untyped => MetricKind::Unspecified,
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
