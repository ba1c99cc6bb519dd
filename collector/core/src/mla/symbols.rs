//! Strings of one stream, each with a number.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

/// Number of a string in its pool; 0 is the empty string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SymbolId(pub(super) u32);

impl SymbolId {
    pub const EMPTY: Self = Self(0);

    /// The number, for tables beside the pool.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Strings with consecutive numbers, one behind the other in memory. None is removed: a pool that
/// has grown too large is replaced.
#[derive(Debug)]
pub struct SymbolPool {
    number: u64,
    texts: String,
    /// End of each string in `texts`.
    ends: Vec<usize>,
    ids: HashTable<u32>,
    hasher: RandomState,
}

impl SymbolPool {
    /// An empty pool. `number` tells it apart from others of its stream.
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            texts: String::new(),
            ends: vec![0],
            ids: HashTable::new(),
            hasher: RandomState::new(),
        }
    }

    /// Number of the pool: [`SymbolId`]s of pools with other numbers mean other strings.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn text(&self, id: SymbolId) -> &str {
        text(&self.texts, &self.ends, id.0)
    }

    /// Number of strings, and one more for each 64 bytes of all: a guest may export long ones.
    pub(super) fn cost(&self) -> usize {
        self.ends.len() + self.texts.len() / 64
    }

    /// The number of a string.
    pub(super) fn id(&mut self, new: &str) -> SymbolId {
        if new.is_empty() {
            return SymbolId::EMPTY;
        }
        let hash = self.hasher.hash_one(new);
        let (texts, ends) = (&self.texts, &self.ends);
        if let Some(known) = self.ids.find(hash, |id| text(texts, ends, *id) == new) {
            return SymbolId(*known);
        }
        let id = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        self.texts.push_str(new);
        self.ends.push(self.texts.len());
        let (texts, ends, hasher) = (&self.texts, &self.ends, &self.hasher);
        self.ids
            .insert_unique(hash, id, |id| hasher.hash_one(text(texts, ends, *id)));
        SymbolId(id)
    }
}

fn text<'a>(texts: &'a str, ends: &[usize], id: u32) -> &'a str {
    let id = id as usize;
    let (Some(before), Some(end)) = (
        id.checked_sub(1).and_then(|before| ends.get(before)),
        ends.get(id),
    ) else {
        return "";
    };
    texts.get(*before..*end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_string_has_one_number() {
        let mut pool = SymbolPool::new(1);
        let texts: Vec<_> = (0..1000).map(|n| format!("é{n}")).collect();
        let ids: Vec<_> = texts.iter().map(|text| pool.id(text)).collect();
        assert_eq!(pool.id(""), SymbolId::EMPTY);
        assert_eq!((pool.text(SymbolId::EMPTY), pool.ends.len()), ("", 1001));
        for (text, id) in texts.iter().zip(ids) {
            assert_eq!((pool.id(text), pool.text(id)), (id, &**text));
        }
        assert_eq!(pool.text(SymbolId(5000)), "");
    }
}
