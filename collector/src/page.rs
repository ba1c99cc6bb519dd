//! One page of a list, of which no more objects are read than were asked for: an API server that is asked for a few and sends
//! millions of small ones would cost far more memory than it sends.

use std::{cell::Cell, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Page<K> {
    /// `items`.
    pub(crate) items: Vec<K>,
    /// `metadata.continue`, when there is more.
    pub(crate) more: Option<String>,
    /// `metadata.resourceVersion`.
    pub(crate) version: Option<String>,
}

/// Why a page is not used. None repeats any of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageError {
    /// It is not a list.
    #[error("{0}")]
    Unreadable(String),
    /// It has more objects than were asked for, which are so many.
    #[error("a page has more than the {0} objects that were asked for")]
    TooMany(usize),
    /// It has a token of more than [`MAX_TOKEN`] bytes.
    #[error("a page has a token of more than {MAX_TOKEN} bytes")]
    LongToken,
}

/// Maximum bytes of a continue token or a version, which are sent back.
const MAX_TOKEN: usize = 8 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: Option<String>,
    r#continue: Option<String>,
}

impl<K: DeserializeOwned> Page<K> {
    /// Reads a page of at most `most` objects.
    ///
    /// # Errors
    /// It is no list, or has more objects. No part of it is repeated.
    pub(crate) fn read(text: &str, most: usize) -> Result<Self, PageError> {
        let mut json = serde_json::Deserializer::from_str(text);
        let too_many = Cell::new(false);
        let seed = List {
            most,
            too_many: &too_many,
            kind: PhantomData,
        };
        let read = seed.deserialize(&mut json);
        if too_many.get() {
            return Err(PageError::TooMany(most));
        }
        let page: Self = read.map_err(|error| PageError::Unreadable(not_kubernetes(&error)))?;
        let long = |token: &Option<String>| token.as_ref().is_some_and(|token| token.len() > MAX_TOKEN);
        if long(&page.more) || long(&page.version) {
            return Err(PageError::LongToken);
        }
        Ok(page)
    }
}

/// Why JSON cannot be read, without any of it: an answer that is not what was asked for may hold anything.
pub(crate) fn not_kubernetes(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let what = match error.classify() {
        serde_json::error::Category::Data => "is not what Kubernetes sends",
        serde_json::error::Category::Eof => "ends too early",
        _ => "is not JSON",
    };
    format!("an answer {what} (line {line}, column {column})")
}

struct List<'a, K> {
    most: usize,
    too_many: &'a Cell<bool>,
    kind: PhantomData<K>,
}

impl<'de, K: Deserialize<'de>> DeserializeSeed<'de> for List<'_, K> {
    type Value = Page<K>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page<K>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, K: Deserialize<'de>> Visitor<'de> for List<'_, K> {
    type Value = Page<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Page<K>, A::Error> {
        let (mut metadata, mut items) = (Metadata::default(), Vec::new());
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "metadata" => metadata = entries.next_value()?,
                // Some servers send null for none.
                "items" => {
                    items = entries.next_value_seed(Items {
                        most: self.most,
                        too_many: self.too_many,
                        kind: PhantomData,
                    })?;
                }
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        let set = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(Page {
            items,
            more: set(metadata.r#continue),
            version: set(metadata.resource_version),
        })
    }
}

struct Items<'a, K> {
    most: usize,
    too_many: &'a Cell<bool>,
    kind: PhantomData<K>,
}

impl<'de, K: Deserialize<'de>> DeserializeSeed<'de> for Items<'_, K> {
    type Value = Vec<K>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Deserialize<'de>> Visitor<'de> for Items<'_, K> {
    type Value = Vec<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.most {
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

    fn read(text: &str) -> Result<Page<u8>, PageError> {
        Page::read(text, 2)
    }

    #[test]
    fn a_page_has_no_more_than_was_asked_for() {
        let page =
            read(r#"{"kind":"L","metadata":{"resourceVersion":"7","continue":""},"items":[1,2]}"#).unwrap();
        assert_eq!(
            (page.items, page.more, page.version.as_deref()),
            (vec![1, 2], None, Some("7"))
        );
        assert_eq!(read(r#"{"metadata":{},"items":null}"#).unwrap().items, [0; 0]);
        for many in ["1,2,3", "1,2,3,4"] {
            let many = read(&format!(r#"{{"items":[{many}],"metadata":{{}}}}"#)).unwrap_err();
            assert_eq!(many, PageError::TooMany(2));
        }
        let long = format!(r#"{{"metadata":{{"continue":"{}"}}}}"#, "x".repeat(MAX_TOKEN + 1));
        assert_eq!(read(&long).unwrap_err(), PageError::LongToken);
    }

    #[test]
    fn what_is_no_list_is_not_repeated() {
        for (text, why) in [
            (r#"{"items":["hunter2"]}"#, "is not what Kubernetes sends"),
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
