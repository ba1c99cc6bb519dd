//! One page of a list, parsed with a limit on the number of objects: an API server that answers a
//! small request with millions of small objects would cost far more memory than its answer has
//! bytes.

use std::{cell::Cell, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

#[derive(Debug)]
pub(crate) struct ListPage<K> {
    pub(crate) items: Vec<K>,
    /// `metadata.continue`, when there is more.
    pub(crate) more: Option<String>,
    /// `metadata.resourceVersion`.
    pub(crate) version: Option<String>,
}

/// Why a page is not used. No message contains any part of the page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListPageError {
    #[error("{0}")]
    Unreadable(String),
    #[error("a page has more than the {0} requested objects")]
    TooMany(usize),
    /// The continue token or the version has more than [`MAX_TOKEN_BYTES`] bytes.
    #[error("a page has a token of more than {MAX_TOKEN_BYTES} bytes")]
    LongToken,
}

/// Maximum bytes of a continue token or a version, which the collector sends back.
const MAX_TOKEN_BYTES: usize = 8 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: Option<String>,
    r#continue: Option<String>,
}

impl<K: DeserializeOwned> ListPage<K> {
    /// Parses a page of at most `max` objects.
    ///
    /// # Errors
    /// The answer is not a list, or has more objects. The error contains no part of the answer.
    pub(crate) fn read(text: &str, max: usize) -> Result<Self, ListPageError> {
        let mut json = serde_json::Deserializer::from_str(text);
        let too_many = Cell::new(false);
        let seed = ListVisitor {
            max,
            too_many: &too_many,
            kind: PhantomData,
        };
        let read = seed.deserialize(&mut json);
        if too_many.get() {
            return Err(ListPageError::TooMany(max));
        }
        let page: Self = read.map_err(|error| ListPageError::Unreadable(not_kubernetes(&error)))?;
        let long = |token: &Option<String>| token.as_ref().is_some_and(|token| token.len() > MAX_TOKEN_BYTES);
        if long(&page.more) || long(&page.version) {
            return Err(ListPageError::LongToken);
        }
        Ok(page)
    }
}

/// Why JSON cannot be parsed, without any part of it: an unexpected answer may contain secrets.
pub(crate) fn not_kubernetes(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let what = match error.classify() {
        serde_json::error::Category::Data => "does not have the expected form",
        serde_json::error::Category::Eof => "ends too early",
        _ => "is not JSON",
    };
    format!("an answer {what} (line {line}, column {column})")
}

struct ListVisitor<'a, K> {
    max: usize,
    too_many: &'a Cell<bool>,
    kind: PhantomData<K>,
}

impl<'de, K: Deserialize<'de>> DeserializeSeed<'de> for ListVisitor<'_, K> {
    type Value = ListPage<K>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ListPage<K>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, K: Deserialize<'de>> Visitor<'de> for ListVisitor<'_, K> {
    type Value = ListPage<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ListPage<K>, A::Error> {
        let (mut metadata, mut items) = (Metadata::default(), Vec::new());
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "metadata" => metadata = entries.next_value()?,
                // Some servers send null for an empty list.
                "items" => {
                    items = entries.next_value_seed(ItemsVisitor {
                        max: self.max,
                        too_many: self.too_many,
                        kind: PhantomData,
                    })?;
                }
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        let set = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(ListPage {
            items,
            more: set(metadata.r#continue),
            version: set(metadata.resource_version),
        })
    }
}

struct ItemsVisitor<'a, K> {
    max: usize,
    too_many: &'a Cell<bool>,
    kind: PhantomData<K>,
}

impl<'de, K: Deserialize<'de>> DeserializeSeed<'de> for ItemsVisitor<'_, K> {
    type Value = Vec<K>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Deserialize<'de>> Visitor<'de> for ItemsVisitor<'_, K> {
    type Value = Vec<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.max {
            match all.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(items),
            }
        }
        if all.next_element::<IgnoredAny>()?.is_some() {
            self.too_many.set(true);
            return Err(A::Error::custom("too many"));
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ListPage<u8>, ListPageError> {
        ListPage::read(text, 2)
    }

    #[test]
    fn pages_with_too_many_objects_are_rejected() {
        let page =
            read(r#"{"kind":"L","metadata":{"resourceVersion":"7","continue":""},"items":[1,2]}"#).unwrap();
        assert_eq!(
            (page.items, page.more, page.version.as_deref()),
            (vec![1, 2], None, Some("7"))
        );
        assert_eq!(read(r#"{"metadata":{},"items":null}"#).unwrap().items, [0; 0]);
        for many in ["1,2,3", "1,2,3,4"] {
            let many = read(&format!(r#"{{"items":[{many}],"metadata":{{}}}}"#)).unwrap_err();
            assert_eq!(many, ListPageError::TooMany(2));
        }
        let long = format!(
            r#"{{"metadata":{{"continue":"{}"}}}}"#,
            "x".repeat(MAX_TOKEN_BYTES + 1)
        );
        assert_eq!(read(&long).unwrap_err(), ListPageError::LongToken);
    }

    #[test]
    fn errors_contain_no_part_of_the_answer() {
        for (text, why) in [
            (r#"{"items":["hunter2"]}"#, "does not have the expected form"),
            ("hunter2", "is not JSON"),
            (r#"{"items":["#, "ends too early"),
        ] {
            let found = read(text).unwrap_err().to_string();
            assert!(
                found.contains(why) && !found.contains("hunter2"),
                "{text}: {found}"
            );
        }
    }
}
