//! The series of one page in a compact form: each text has only what differs from the one before
//! it. Series of a page resemble their neighbours, so most need a few bytes, and the next page is
//! compared with them in one pass.

use std::sync::Arc;

use super::{
    family_table::{MetricMeta, TableShare},
    memory::CountedMemory,
    varint,
};

/// Mark in [`ChangedLayout::origins`] of a series that the last page did not have.
pub(super) const NO_ORIGIN: u32 = u32::MAX;

/// The series of a page, in its order, with their metadata.
#[derive(Debug, Default)]
pub struct PageLayout {
    /// Of each series: number of bytes that its text has in common with the one before it, number
    /// of bytes that follow, and these.
    texts: Box<[u8]>,
    len: usize,
    /// Index of the first series of each run with the same metadata.
    runs: Box<[(u32, Arc<MetricMeta>)]>,
    /// Counts the memory while the layout exists.
    _memory: Option<CountedMemory>,
}

/// The series of a page; pages with the same series share it.
pub type PageSeries = Arc<PageLayout>;

impl PageLayout {
    /// Number of series.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no series.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether both have the same series with the same metadata.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let (own, others) = (self.runs.iter(), other.runs.iter());
        // Equal texts in the same order have the same form.
        self.texts == other.texts
            && self.runs.len() == other.runs.len()
            && own
                .zip(others)
                .all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(&a.1, &b.1))
    }

    /// Passes the text and the metadata of each series to `take`.
    pub(super) fn each(&self, mut take: impl FnMut(&str, &Arc<MetricMeta>)) {
        let mut cursor = LayoutCursor::new(self);
        while let Some(text) = cursor.text() {
            if let (Ok(text), Some(meta)) = (str::from_utf8(text), cursor.meta(self)) {
                take(text, meta);
            }
            cursor.advance(self);
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct LayoutCursor {
    /// Index of the present series.
    index: usize,
    /// Where the present series begins in `texts`.
    start: usize,
    /// Where the next one begins.
    next: usize,
    run: usize,
    /// Text of the present series.
    text: Vec<u8>,
    /// Length of the metric's name in `text`.
    name_len: usize,
    is_at_end: bool,
}

impl LayoutCursor {
    /// A cursor at the first series.
    pub(super) fn new(layout: &PageLayout) -> Self {
        let mut cursor = Self {
            index: 0,
            start: 0,
            next: 0,
            run: 0,
            text: Vec::new(),
            name_len: 0,
            is_at_end: false,
        };
        cursor.read(layout);
        cursor
    }

    /// Index of the present series; at the end, the number of series.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Text of the present series; none at the end.
    #[inline]
    pub(super) fn text(&self) -> Option<&[u8]> {
        (!self.is_at_end).then_some(&*self.text)
    }

    /// Length of the metric's name at the beginning of the text.
    pub(super) fn name_len(&self) -> usize {
        self.name_len
    }

    /// Metadata of the present series.
    #[inline]
    pub(super) fn meta<'a>(&self, layout: &'a PageLayout) -> Option<&'a Arc<MetricMeta>> {
        layout.runs.get(self.run).map(|(_, meta)| meta)
    }

    /// Moves to the next series.
    pub(super) fn advance(&mut self, layout: &PageLayout) {
        if self.is_at_end {
            return;
        }
        self.index += 1;
        let is_next = |(first, _): &(u32, _)| *first as usize <= self.index;
        if layout.runs.get(self.run + 1).is_some_and(is_next) {
            self.run += 1;
        }
        self.read(layout);
    }

    fn read(&mut self, layout: &PageLayout) {
        self.start = self.next;
        if self.start >= layout.texts.len() {
            self.is_at_end = true;
            return;
        }
        let mut at = self.start;
        let shared = length(varint::take(&layout.texts, &mut at));
        let rest = length(varint::take(&layout.texts, &mut at));
        self.next = at.saturating_add(rest).min(layout.texts.len());
        self.text.truncate(shared);
        self.text.extend_from_slice(&layout.texts[at..self.next]);
        // Otherwise the end of the name is within the common part.
        if shared <= self.name_len {
            let end = self
                .text
                .iter()
                .position(|byte| matches!(byte, b'{' | b' ' | b'\t'));
            self.name_len = end.unwrap_or(self.text.len());
        }
    }
}

/// The layout of a page that differs from the last one, while the page is read.
#[derive(Debug, Default)]
pub(super) struct ChangedLayout {
    texts: Vec<u8>,
    len: usize,
    runs: Vec<(u32, Arc<MetricMeta>)>,
    /// Text of the last series.
    previous: Vec<u8>,
    /// Index of each series in the last page, or [`NO_ORIGIN`].
    origins: Vec<u32>,
}

impl ChangedLayout {
    /// The series of `last` before the cursor.
    pub(super) fn beginning(last: &PageLayout, until: &LayoutCursor) -> Self {
        let mut previous = LayoutCursor::new(last);
        while previous.index() + 1 < until.index() {
            previous.advance(last);
        }
        let runs = last
            .runs
            .iter()
            .filter(|(first, _)| (*first as usize) < until.index());
        Self {
            texts: last.texts[..until.start].to_vec(),
            len: until.index(),
            runs: runs.cloned().collect(),
            previous: if until.index() == 0 {
                Vec::new()
            } else {
                previous.text
            },
            origins: (0..position(until.index())).collect(),
        }
    }

    /// Appends a series; `origin` is its index in the last page, or [`NO_ORIGIN`].
    pub(super) fn push(&mut self, text: &[u8], meta: &Arc<MetricMeta>, origin: u32) {
        let shared = text
            .iter()
            .zip(&self.previous)
            .take_while(|(a, b)| a == b)
            .count();
        varint::put(&mut self.texts, shared as u64);
        varint::put(&mut self.texts, (text.len() - shared) as u64);
        self.texts.extend_from_slice(&text[shared..]);
        self.previous.truncate(shared);
        self.previous.extend_from_slice(&text[shared..]);
        if self.runs.last().is_none_or(|(_, last)| !Arc::ptr_eq(last, meta)) {
            self.runs.push((position(self.len), Arc::clone(meta)));
        }
        self.len += 1;
        self.origins.push(origin);
    }

    /// The layout, and the origins of its series.
    ///
    /// # Errors
    /// The series of the stream's pages need too much memory.
    pub(super) fn finish(self, table: &TableShare) -> Result<(PageLayout, Vec<u32>), String> {
        let bytes = size_of::<PageLayout>() + self.texts.len() + size_of_val(&*self.runs);
        let layout = PageLayout {
            texts: self.texts.into(),
            len: self.len,
            runs: self.runs.into(),
            _memory: Some(table.reserve(bytes)?),
        };
        Ok((layout, self.origins))
    }
}

/// A length that this module has written.
fn length(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Index of a series. A page has far fewer than 2^32.
fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NO_ORIGIN - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(table: &TableShare, texts: &[String]) -> PageLayout {
        let mut all = ChangedLayout::default();
        for text in texts {
            // Metadata changes with the first letter.
            let meta = table.meta(&text[..1], None, "");
            all.push(text.as_bytes(), &meta, NO_ORIGIN);
        }
        all.finish(table).unwrap().0
    }

    fn read(layout: &PageLayout) -> Vec<(String, String)> {
        let mut all = Vec::new();
        layout.each(|text, meta| all.push((text.to_owned(), meta.family.to_string())));
        all
    }

    #[test]
    fn neighbours_need_few_bytes() {
        let texts: Vec<_> = (0..100)
            .map(|n| format!("node_network_receive_bytes_total{{device=\"lxc{n:012x}\"}}"))
            .collect();
        let layout = layout(&TableShare::default(), &texts);
        assert!(layout.texts.len() < 800, "{}", layout.texts.len());
    }

    proptest! {
        #[test]
        fn texts_are_read_as_they_were_written(
            texts in prop::collection::vec("[ab][abé]{0,2}(\\{x=\"[abé]{0,3}\"\\})?", 0..12),
            cut in 0..12_usize,
            more in prop::collection::vec("[ab][abé]{0,3}", 0..4),
        ) {
            let table = TableShare::default();
            let first = layout(&table, &texts);
            prop_assert_eq!(first.len(), texts.len());
            let mut cursor = LayoutCursor::new(&first);
            for text in &texts {
                prop_assert_eq!(cursor.text(), Some(text.as_bytes()));
                prop_assert_eq!(Some(cursor.name_len()), text.find('{').or(Some(text.len())));
                cursor.advance(&first);
            }
            prop_assert_eq!((cursor.text(), cursor.index()), (None, texts.len()));
            let expected = |texts: &[String]| -> Vec<_> {
                texts.iter().map(|text| (text.clone(), text[..1].to_owned())).collect()
            };
            prop_assert_eq!(read(&first), expected(&texts));
            // A beginning of the layout, with other series behind it.
            let mut cursor = LayoutCursor::new(&first);
            for _ in 0..cut.min(texts.len()) {
                cursor.advance(&first);
            }
            let mut changed = ChangedLayout::beginning(&first, &cursor);
            for text in &more {
                changed.push(text.as_bytes(), &table.meta(&text[..1], None, ""), NO_ORIGIN);
            }
            let (second, origins) = changed.finish(&table).unwrap();
            let all: Vec<_> = texts.iter().take(cut).chain(&more).cloned().collect();
            prop_assert_eq!(read(&second), expected(&all));
            prop_assert!(second.is_same(&layout(&table, &all)));
            prop_assert_eq!(origins.iter().filter(|origin| **origin == NO_ORIGIN).count(), more.len());
        }
    }
}
