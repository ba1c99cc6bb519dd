//! Series that whoever scrapes a target writes about it, as Prometheus does.

use std::sync::Arc;

use virtfleet_wire::exposition::MetricType;

use super::{
    family_table::TableShare,
    page_layout::{ChangedLayout, NO_ORIGIN, PageSeries},
    page_rules::SYNTHETIC,
};

/// Help texts, in the order of [`SYNTHETIC`].
const HELP: [&str; SYNTHETIC.len()] = [
    "Whether the VM's agent answered the pull.",
    "Duration of the pull.",
    "Samples on the VM's page.",
    "Samples that remain after relabelling.",
    "Series that the last page did not have.",
];

/// The series in the order of [`SYNTHETIC`], without labels.
pub(super) fn series(table: &TableShare) -> PageSeries {
    let mut layout = ChangedLayout::default();
    for (name, help) in SYNTHETIC.iter().zip(HELP) {
        let meta = table.meta(name, Some(MetricType::Gauge), help);
        layout.push(name.as_bytes(), &meta, NO_ORIGIN);
    }
    let layout = layout.finish(table).map(|(layout, _)| layout);
    Arc::new(layout.unwrap_or_default())
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PullFigures {
    pub(super) up: bool,
    pub(super) seconds: f64,
    pub(super) scraped: u64,
    pub(super) kept: u64,
    pub(super) added: u64,
}

impl PullFigures {
    /// The values in the order of [`SYNTHETIC`].
    pub(super) fn values(&self) -> [f64; SYNTHETIC.len()] {
        [
            f64::from(u8::from(self.up)),
            self.seconds,
            self.scraped as f64,
            self.kept as f64,
            self.added as f64,
        ]
    }
}
