//! The smallest sender: one page a scrape, one series after the other, nothing on disk.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
};

use virtfleet_remote_write::request::{
    FinishedRequest, MetricKind, RequestBuilder, STALE_NAN, SeriesMeta, SymbolRef,
};
use virtfleet_wire::exposition::{Line, MetricType, parse_line};

/// Samples of one request.
const MAX_SAMPLES: u32 = 10_000;

type SeriesLabels = BTreeMap<String, String>;

/// Makes write requests of the pages of one target, with staleness markers for series that are not
/// on the page any more.
#[derive(Debug, Default)]
pub struct PageSender {
    builder: RequestBuilder,
    /// Labels that every series has.
    labels: SeriesLabels,
    last: BTreeSet<SeriesLabels>,
    finished: Vec<FinishedRequest>,
}

/// What the page says of a family.
#[derive(Debug, Clone, Default)]
struct FamilyMeta {
    kind: MetricKind,
    help: String,
    unit: String,
}

impl PageSender {
    /// A sender for a target with these labels.
    pub fn new(labels: &[(&str, &str)]) -> Self {
        Self {
            labels: labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Self::default()
        }
    }

    /// The requests of one scrape, as [`Self::scrape`] and [`Self::flush`].
    pub fn scraped(&mut self, page: Option<&str>, now_ms: i64) -> Vec<FinishedRequest> {
        self.scrape(page, now_ms);
        self.flush()
    }

    /// All requests that are not empty.
    pub fn flush(&mut self) -> Vec<FinishedRequest> {
        let mut finished = mem::take(&mut self.finished);
        if self.builder.samples() > 0 {
            finished.push(self.builder.finish());
        }
        finished
    }

    /// Appends the samples of one scrape at `now_ms`, milliseconds since 1970. Without a page, all
    /// series of the last one end, and `up` is 0.
    pub fn scrape(&mut self, page: Option<&str>, now_ms: i64) {
        let mut families: HashMap<String, FamilyMeta> = HashMap::new();
        let mut seen = BTreeSet::new();
        for line in page.unwrap_or_default().lines() {
            if let Some((name, unit)) = unit_line(line) {
                unit.clone_into(&mut families.entry(name.to_owned()).or_default().unit);
                continue;
            }
            match parse_line(line) {
                Ok(Line::Help(name, help)) => {
                    families.entry(name.to_owned()).or_default().help = help.into_owned();
                }
                Ok(Line::Type(name, kind)) => {
                    families.entry(name.to_owned()).or_default().kind = metric_kind(kind);
                }
                Ok(Line::Sample(sample)) => {
                    let mut labels: SeriesLabels = sample
                        .labels
                        .filter_map(Result::ok)
                        .map(|(name, value)| (name.to_owned(), value.into_owned()))
                        .filter(|(_, value)| !value.is_empty())
                        .collect();
                    for (name, value) in &self.labels {
                        if let Some(own) = labels.insert(name.clone(), value.clone()) {
                            labels.insert(format!("exported_{name}"), own);
                        }
                    }
                    labels.insert("__name__".to_owned(), sample.name.to_owned());
                    let meta = family_of(&families, sample.name);
                    let time = sample.timestamp_ms.unwrap_or(now_ms);
                    self.append(&labels, &meta, time, sample.value);
                    if sample.timestamp_ms.is_none() {
                        seen.insert(labels);
                    }
                }
                Ok(Line::Blank | Line::Eof) | Err(_) => {}
            }
        }
        let last = mem::take(&mut self.last);
        for ended in last.difference(&seen) {
            self.append(ended, &FamilyMeta::default(), now_ms, f64::from_bits(STALE_NAN));
        }
        self.last = seen;
        let mut up = self.labels.clone();
        up.insert("__name__".to_owned(), "up".to_owned());
        let gauge = FamilyMeta {
            kind: MetricKind::Gauge,
            ..FamilyMeta::default()
        };
        self.append(&up, &gauge, now_ms, f64::from(u8::from(page.is_some())));
    }

    fn append(&mut self, labels: &SeriesLabels, meta: &FamilyMeta, time: i64, value: f64) {
        if self.builder.samples() >= MAX_SAMPLES {
            let full = self.builder.finish();
            self.finished.push(full);
        }
        let labels: Vec<(SymbolRef, SymbolRef)> = labels
            .iter()
            .map(|(name, value)| (self.builder.symbol(name), self.builder.symbol(value)))
            .collect();
        let meta = SeriesMeta {
            kind: meta.kind,
            help: self.builder.symbol(&meta.help),
            unit: self.builder.symbol(&meta.unit),
        };
        self.builder.series(&labels, meta, time, value, 0);
    }
}

/// OpenMetrics' `# UNIT name unit`, which the format of Prometheus does not have.
fn unit_line(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("# UNIT ")?.split_once(' ')
}

fn family_of(families: &HashMap<String, FamilyMeta>, name: &str) -> FamilyMeta {
    let suffixes = ["", "_bucket", "_count", "_sum", "_total"];
    let found = suffixes
        .iter()
        .find_map(|suffix| families.get(name.strip_suffix(suffix)?));
    found.cloned().unwrap_or_default()
}

fn metric_kind(kind: MetricType) -> MetricKind {
    match kind {
        MetricType::Counter => MetricKind::Counter,
        MetricType::Gauge => MetricKind::Gauge,
        MetricType::Histogram => MetricKind::Histogram,
        MetricType::Summary => MetricKind::Summary,
        MetricType::Untyped => MetricKind::Unspecified,
    }
}
