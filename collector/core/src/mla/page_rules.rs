//! Limits on a guest's metrics page, and what a guest must not export. A page over a limit is
//! rejected as a whole, as Prometheus does.

use virtfleet_wire::exposition::Sample;

/// Maximum number of labels of a sample. Samples of node_exporter have at most ten; Cortex accepts
/// 40 including the target's labels.
const MAX_LABELS: usize = 30;
/// Maximum length of a label's value, in bytes. The longest values of node_exporter are mount
/// points.
const MAX_LABEL_VALUE_BYTES: usize = 1024;
/// Maximum length of a metric's or label's name, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// Prefixes of families that only the collector may export: a guest's families would look like the
/// platform's.
const RESERVED_PREFIXES: [&str; 5] = [
    "virtfleet_vm_",
    "virtfleet_host_",
    "virtfleet_cluster_",
    "virtfleet_label_",
    "virtfleet_inventory_",
];
/// Families that whoever scrapes a target writes about it.
pub(super) const SYNTHETIC: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

/// Limits on one page and its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleLimits {
    /// Maximum number of samples of a page.
    pub samples: u64,
    /// Maximum number of labels of a sample.
    pub labels: usize,
    /// Maximum length of a label's value, in bytes.
    pub label_value_bytes: usize,
}

impl SampleLimits {
    /// The default limits on samples, with this number of samples.
    pub fn new(samples: u64) -> Self {
        Self {
            samples,
            labels: MAX_LABELS,
            label_value_bytes: MAX_LABEL_VALUE_BYTES,
        }
    }

    /// No limits.
    pub(super) fn none() -> Self {
        Self {
            samples: u64::MAX,
            labels: usize::MAX,
            label_value_bytes: usize::MAX,
        }
    }

    /// Checks one sample.
    ///
    /// # Errors
    /// Which limit it exceeds, or which label is malformed.
    pub fn check(&self, sample: &Sample<'_>) -> Result<(), String> {
        if sample.name.len() > MAX_NAME_BYTES {
            return Err(format!("a metric's name of more than {MAX_NAME_BYTES} bytes"));
        }
        let mut count = 0;
        for label in sample.labels.clone() {
            let (name, value) = label.map_err(|error| error.to_string())?;
            count += 1;
            if count > self.labels {
                return Err(format!("more than {} labels", self.labels));
            }
            if name.len() > MAX_NAME_BYTES || value.len() > self.label_value_bytes {
                return Err(format!(
                    "a label of more than {MAX_NAME_BYTES} bytes in its name or {} in its value",
                    self.label_value_bytes
                ));
            }
        }
        Ok(())
    }
}

/// Whether only the collector may export a family of this name.
pub fn is_reserved(name: &str) -> bool {
    RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a guest's sample is not written to a receiver: its family is the collector's, or a label
/// begins with `__`, which receivers reserve (`__replica__` starts Cortex' deduplication).
pub(super) fn is_withheld(sample: &Sample<'_>) -> bool {
    is_reserved(sample.name)
        || SYNTHETIC.contains(&sample.name)
        || sample
            .labels
            .clone()
            .any(|label| label.is_ok_and(|(name, _)| name.starts_with("__")))
}
