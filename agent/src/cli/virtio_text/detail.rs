//! Level of detail of queues.

use super::super::rows::Cell;

/// Maximum number of queues that are shown one by one. Above it, only the sum of a device or
/// interface is shown.
const MAX_QUEUES: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(super) struct Detail {
    pub(super) all: bool,
    /// No single queue, because there are many.
    pub(super) sums: bool,
}

impl Detail {
    /// True if each of `queues` queues is shown.
    pub(super) fn each(self, queues: usize) -> bool {
        queues > 0 && (self.all || (!self.sums && queues <= MAX_QUEUES))
    }
}

/// A count, or `-`.
pub(super) fn number(count: Option<u64>) -> Cell {
    count.map_or_else(|| "-".into(), |count| count.to_string().into())
}
