//! Label maps with interned strings: thousands of objects have the same keys and mostly the same
//! values, so each string is stored once.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    ops::Index,
    sync::Arc,
};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Labels or annotations, sorted by key. A clone shares everything; a change copies the list of
/// pairs, but no string.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[Pair]>);

/// Key and value.
type Pair = (Arc<str>, Arc<str>);

impl Labels {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(key))
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.find(key).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }

    /// Whether the map has the key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    /// Keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(key, _)| key)
    }

    /// Sets a value and returns the previous one.
    pub fn insert(&mut self, key: String, value: String) -> Option<String> {
        let before = self.get(&key).map(str::to_owned);
        self.extend([(key, value)]);
        before
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let at = self.find(key).ok()?;
        let mut pairs = self.0.to_vec();
        let (_, value) = pairs.remove(at);
        self.0 = pairs.into();
        Some(value.as_ref().to_owned())
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Index<&str> for Labels {
    type Output = str;
    /// Panics without the key, as a map does.
    fn index(&self, key: &str) -> &str {
        self.get(key).unwrap_or_else(|| panic!("no label {key:?}"))
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        // The last of several pairs with one key wins.
        let pairs = pairs.into_iter().map(|(key, value)| (key.into(), value.into()));
        let pairs: BTreeMap<Arc<str>, Arc<str>> = pairs.collect();
        Self(pairs.into_iter().collect())
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> Extend<(K, V)> for Labels {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, more: I) {
        let more = more.into_iter().map(|(key, value)| (key.into(), value.into()));
        *self = self.0.iter().cloned().chain(more).collect();
    }
}

impl IntoIterator for Labels {
    type Item = Pair;
    type IntoIter = std::vec::IntoIter<Pair>;
    fn into_iter(self) -> Self::IntoIter {
        Vec::from(&*self.0).into_iter()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<String, String>::deserialize(deserializer).map(Self::from_iter)
    }
}

impl JsonSchema for Labels {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        BTreeMap::<String, String>::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, String>::json_schema(generator)
    }
}

/// The strings of all labels, each stored once.
#[derive(Debug, Default)]
pub(crate) struct StringInterner {
    all: HashSet<Arc<str>>,
    /// Number of strings above which unused ones are dropped.
    sweep_above: usize,
}

/// Minimum number of strings before unused ones are dropped.
const MIN_SWEEP_SIZE: usize = 1024;

impl StringInterner {
    /// Replaces the strings of `labels` by interned ones.
    pub(crate) fn share(&mut self, labels: &mut Labels) {
        if labels
            .0
            .iter()
            .all(|(key, value)| self.has(key) && self.has(value))
        {
            return;
        }
        let pairs = labels.0.iter();
        labels.0 = pairs
            .map(|(key, value)| (self.intern(key), self.intern(value)))
            .collect();
        self.sweep();
    }

    /// Replaces `strings` by interned ones.
    pub(crate) fn share_strings<'a>(&mut self, strings: impl Iterator<Item = &'a mut Arc<str>>) {
        for string in strings {
            *string = self.intern(string);
        }
        self.sweep();
    }

    /// Drops unused strings if there are many.
    fn sweep(&mut self) {
        if self.all.len() > self.sweep_above.max(MIN_SWEEP_SIZE) {
            self.all.retain(|string| Arc::strong_count(string) > 1);
            self.all.shrink_to(self.all.len() * 2);
            self.sweep_above = self.all.len() * 2;
        }
    }

    /// Whether exactly this copy of a string is interned.
    fn has(&self, string: &Arc<str>) -> bool {
        self.all
            .get(string)
            .is_some_and(|known| Arc::ptr_eq(known, string))
    }

    fn intern(&mut self, string: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.all.get(string) {
            return Arc::clone(known);
        }
        self.all.insert(Arc::clone(string));
        Arc::clone(string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    #[test]
    fn labels_are_a_map_sorted_by_key() {
        let mut some = labels(&[("b", "2"), ("a", "0"), ("a", "1")]);
        assert_eq!(some.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        assert_eq!((some.get("a"), some.get("c"), &some["b"]), (Some("1"), None, "2"));
        let copy = some.clone();
        assert_eq!(some.insert("ab".into(), "x".into()), None);
        assert_eq!(some.insert("a".into(), "3".into()).as_deref(), Some("1"));
        assert_eq!(some, labels(&[("a", "3"), ("ab", "x"), ("b", "2")]));
        assert_eq!((some.remove("a").as_deref(), some.remove("a")), (Some("3"), None));
        assert_eq!(copy, labels(&[("a", "1"), ("b", "2")]), "a clone does not change");
        some.extend(copy);
        assert_eq!(some, labels(&[("a", "1"), ("ab", "x"), ("b", "2")]));
        let text = serde_json::to_string(&some).unwrap();
        assert_eq!(text, r#"{"a":"1","ab":"x","b":"2"}"#);
        assert_eq!(serde_json::from_str::<Labels>(&text).unwrap(), some);
    }

    #[test]
    fn equal_strings_are_stored_once_and_unused_ones_are_dropped() {
        let mut strings = StringInterner::default();
        let (mut one, mut other) = (labels(&[("zone", "a")]), labels(&[("zone", "a")]));
        strings.share(&mut one);
        strings.share(&mut other);
        assert!(Arc::ptr_eq(&one.0[0].0, &other.0[0].0) && Arc::ptr_eq(&one.0[0].1, &other.0[0].1));
        for number in 0..10 * MIN_SWEEP_SIZE {
            strings.share(&mut labels(&[("name", &format!("vm-{number}"))]));
        }
        assert!(strings.all.len() <= MIN_SWEEP_SIZE + 1, "{}", strings.all.len());
        strings.share(&mut other);
        assert!(Arc::ptr_eq(&one.0[0].1, &other.0[0].1), "used strings stay");
    }
}
