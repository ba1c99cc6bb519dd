//! Reads a guest's page line by line into series and values. A page is complete or rejected.

use std::sync::Arc;

use virtfleet_wire::exposition::{Line, LineError, MetricType, Sample, parse_known, parse_line};

pub use super::page_layout::PageSeries;
use super::{
    family_table::{MetricMeta, TableShare},
    guest_labels::GuestLabels,
    known_comment::parse_known_comment,
    page_layout::{ChangedLayout, LayoutCursor, NO_ORIGIN},
    page_rules::{SampleLimits, is_withheld},
};

/// Maximum length of a help text that is passed on, in bytes; the rest is cut off. Cortex accepts
/// 1024.
const MAX_HELP_BYTES: usize = 1024;
/// Series of the last page that are compared with a line before it counts as a new series.
const MAX_AHEAD: usize = 4;

#[derive(Debug, Clone)]
pub struct GuestPage {
    /// The series. The same allocation as that of the last page if that had the same series.
    pub(super) series: PageSeries,
    pub(super) values: Vec<f64>,
    /// Where the series come from, if they are others than those of the last page.
    pub(super) origins: Option<SeriesOrigins>,
    /// Number of samples on the page, withheld ones included.
    pub samples: u64,
    /// Samples that are not passed on: reserved families and labels.
    pub withheld: u64,
}

/// Which series of a page the last page had.
#[derive(Debug, Clone)]
pub(super) struct SeriesOrigins {
    pub(super) last: PageSeries,
    /// Index in `last` of each series, or [`NO_ORIGIN`]. The indices increase.
    pub(super) indices: Vec<u32>,
}

impl GuestPage {
    /// The series, for the reader of the VM's next page.
    pub fn series(&self) -> PageSeries {
        Arc::clone(&self.series)
    }
}

/// State of the page being read.
#[derive(Debug)]
pub struct PageReader {
    table: Arc<TableShare>,
    limits: SampleLimits,
    /// Series of the VM's last page: the next one mostly has the same, in the same order.
    last: PageSeries,
    /// The series of `last` that is expected next.
    expected: LayoutCursor,
    /// The series so far, once they differ from the beginning of `last`.
    changed: Option<ChangedLayout>,
    values: Vec<f64>,
    family: Family,
    samples: u64,
    withheld: u64,
    /// Reserved families are passed on, too: the page is the platform's own.
    is_trusted: bool,
    failed: Option<String>,
}

/// The family that the last comments describe.
#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: Option<MetricType>,
    help: String,
    /// Its entry in the table, once a sample needed it.
    meta: Option<Arc<MetricMeta>>,
}

impl PageReader {
    /// A reader for a page of a VM whose last page had the series `last`. What it needs counts for
    /// the stream of `table`.
    pub fn new(table: Arc<TableShare>, limits: SampleLimits, last: PageSeries) -> Self {
        Self {
            values: Vec::with_capacity(last.len()),
            expected: LayoutCursor::new(&last),
            table,
            limits,
            last,
            changed: None,
            family: Family::default(),
            samples: 0,
            withheld: 0,
            is_trusted: false,
            failed: None,
        }
    }

    /// A reader for a page that the platform itself has written, without limits.
    pub fn trusted(table: Arc<TableShare>, last: PageSeries) -> Self {
        Self {
            is_trusted: true,
            ..Self::new(table, SampleLimits::none(), last)
        }
    }

    /// Parses the next line and reads it. A sample that the last page had at this place is not
    /// parsed again, but for its value.
    ///
    /// # Errors
    /// The first error in the line.
    pub fn read<'text>(&mut self, text: &'text str) -> Result<Line<'text>, LineError> {
        if let Some(sample) = self.expected_sample(text) {
            return Ok(Line::Sample(sample));
        }
        let meta = self.expected.meta(&self.last);
        let known = meta.and_then(|meta| parse_known_comment(text, &meta.family, meta.kind()));
        let line = match known {
            Some(known) => known,
            None => parse_line(text)?,
        };
        self.line(&line);
        Ok(line)
    }

    /// Reads the next line. After an error the rest of the page is ignored.
    fn line(&mut self, line: &Line<'_>) {
        if self.failed.is_some() {
            return;
        }
        match line {
            Line::Blank | Line::Eof => {}
            Line::Help(name, text) => {
                let family = self.family.start(name);
                family.help.clear();
                family.help.push_str(beginning(text, MAX_HELP_BYTES));
                family.meta = None;
            }
            Line::Type(name, kind) => {
                let family = self.family.start(name);
                family.kind = Some(*kind);
                family.meta = None;
            }
            Line::Sample(sample) => {
                if let Err(error) = self.sample(sample) {
                    self.failed = Some(format!("{}: {error}", beginning(sample.series, 100)));
                }
            }
        }
    }

    /// Samples so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The page.
    ///
    /// # Errors
    /// Which series exceeds a limit or is malformed, and why.
    pub fn finish(mut self) -> Result<GuestPage, String> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.expected.text().is_some() {
            // The last series of the last page are missing.
            self.changed();
        }
        let (series, origins) = match self.changed.take() {
            None => {
                // The shares of streams become smaller with each new one.
                self.table.check()?;
                (self.last, None)
            }
            Some(changed) => {
                let (layout, indices) = changed.finish(&self.table)?;
                if layout.is_same(&self.last) {
                    (self.last, None)
                } else {
                    let last = self.last;
                    (Arc::new(layout), Some(SeriesOrigins { last, indices }))
                }
            }
        };
        Ok(GuestPage {
            series,
            values: self.values,
            origins,
            samples: self.samples,
            withheld: self.withheld,
        })
    }

    /// The sample in a line, if it is of the expected series.
    fn expected_sample<'text>(&mut self, line: &'text str) -> Option<Sample<'text>> {
        let text = self.expected.text()?;
        if !line.as_bytes().starts_with(text) || self.failed.is_some() || self.samples >= self.limits.samples
        {
            return None;
        }
        let (length, name_len) = (text.len(), self.expected.name_len());
        let sample = parse_known(line, length, name_len)?;
        let meta = self.expected.meta(&self.last)?;
        if !self.family.describes(meta, sample.name, &self.table) {
            return None;
        }
        self.samples += 1;
        self.keep(sample.value);
        Some(sample)
    }

    fn sample(&mut self, sample: &Sample<'_>) -> Result<(), String> {
        self.samples += 1;
        if self.samples > self.limits.samples {
            return Err(format!("more than {} samples", self.limits.samples));
        }
        if let Some(found) = self.ahead(sample) {
            if found.index() > self.expected.index() {
                self.changed();
                self.expected = found;
            }
            self.keep(sample.value);
            return Ok(());
        }
        self.limits.check(sample)?;
        if !self.is_trusted && is_withheld(sample) {
            self.withheld += 1;
            return Ok(());
        }
        GuestLabels::of(sample)?;
        let meta = self.family.meta_of(sample.name, &self.table);
        self.changed().push(sample.series.as_bytes(), &meta, NO_ORIGIN);
        self.values.push(sample.value);
        Ok(())
    }

    /// The series of a sample, if it is one of the next ones of the last page.
    fn ahead(&mut self, sample: &Sample<'_>) -> Option<LayoutCursor> {
        let mut cursor = self.expected.clone();
        for _ in 0..MAX_AHEAD {
            let text = cursor.text()?;
            if text == sample.series.as_bytes()
                && let Some(meta) = cursor.meta(&self.last)
                && self.family.describes(meta, sample.name, &self.table)
            {
                return Some(cursor);
            }
            cursor.advance(&self.last);
        }
        None
    }

    /// Appends the expected series.
    #[inline]
    fn keep(&mut self, value: f64) {
        if let Some(changed) = &mut self.changed
            && let (Some(text), Some(meta)) = (self.expected.text(), self.expected.meta(&self.last))
        {
            let origin = u32::try_from(self.expected.index()).unwrap_or(NO_ORIGIN);
            changed.push(text, meta, origin);
        }
        self.expected.advance(&self.last);
        self.values.push(value);
    }

    /// The series so far, apart from `last`.
    fn changed(&mut self) -> &mut ChangedLayout {
        let (last, expected) = (&self.last, &self.expected);
        self.changed
            .get_or_insert_with(|| ChangedLayout::beginning(last, expected))
    }
}

impl Family {
    /// Begins a family, unless it is the current one.
    fn start(&mut self, name: &str) -> &mut Self {
        if self.name != name {
            self.name.clear();
            self.name.push_str(name);
            self.help.clear();
            (self.kind, self.meta) = (None, None);
        }
        self
    }

    /// Whether a known series of this name has the metadata that it has on this page.
    fn describes(&mut self, known: &Arc<MetricMeta>, name: &str, table: &TableShare) -> bool {
        if let Some(meta) = &self.meta
            && Arc::ptr_eq(meta, known)
        {
            return true;
        }
        if Arc::ptr_eq(known, table.no_meta()) {
            return !self.contains(name);
        }
        let is_same = self.meta.is_none()
            && *known.family == *self.name
            && known.kind() == self.kind
            && *known.help == *self.help;
        if is_same {
            self.meta = Some(Arc::clone(known));
        }
        is_same
    }

    fn meta_of(&mut self, name: &str, table: &TableShare) -> Arc<MetricMeta> {
        if !self.contains(name) {
            return Arc::clone(table.no_meta());
        }
        let meta = self
            .meta
            .get_or_insert_with(|| table.meta(&self.name, self.kind, &self.help));
        Arc::clone(meta)
    }

    /// Whether a sample of this name belongs to the family.
    fn contains(&self, name: &str) -> bool {
        if self.name.is_empty() {
            return false;
        }
        let Some(suffix) = name.strip_prefix(self.name.as_str()) else {
            return false;
        };
        match self.kind {
            Some(MetricType::Histogram) => matches!(suffix, "" | "_bucket" | "_sum" | "_count"),
            Some(MetricType::Summary) => matches!(suffix, "" | "_sum" | "_count"),
            _ => suffix.is_empty(),
        }
    }
}

/// At most `limit` bytes from the beginning of a text.
fn beginning(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
#[path = "page_reader_tests.rs"]
mod tests;
