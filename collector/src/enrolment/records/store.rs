//! Storage of records, behind a trait so that tests can inject errors.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredShard<V> {
    pub shard: usize,
    /// Its JSON, and the version needed to replace it; none if it does not exist.
    pub stored: Option<(String, V)>,
}

/// Why a shard was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordWriteError {
    #[error("another process wrote it meanwhile")]
    Conflict,
    #[error("{0}")]
    Failed(String),
}

/// Storage of records in shards.
pub trait RecordStore: Send + Sync + 'static {
    /// The version needed to replace what was read.
    type Version: Clone + Send + Sync + 'static;

    fn shards(&self) -> usize;

    /// Reads one shard, or all.
    fn read(
        &self,
        shard: Option<usize>,
    ) -> impl Future<Output = Result<Vec<StoredShard<Self::Version>>, String>> + Send;

    /// Creates the shard, or replaces the version that was read, and returns the new version.
    fn write(
        &self,
        shard: usize,
        json: String,
        over: Option<&Self::Version>,
    ) -> impl Future<Output = Result<Self::Version, RecordWriteError>> + Send;
}
