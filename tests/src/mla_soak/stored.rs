//! What a receiver has stored.

use std::collections::BTreeMap;

/// Labels of a series, with `__name__`.
pub(super) type Labels = BTreeMap<String, String>;
/// Timestamp in milliseconds and value of each sample. The value of a stale marker is NaN.
pub(super) type Samples = Vec<(i64, f64)>;
