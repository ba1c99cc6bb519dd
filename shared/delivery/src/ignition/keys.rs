//! Keys of objects that Ignition reads in another way than a map does: Go takes them in any case,
//! and a later one for the same field.

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

/// Keys that are read here, so that another case would hide them.
const READ: [&str; 15] = [
    "ignition",
    "version",
    "config",
    "merge",
    "replace",
    "source",
    "storage",
    "files",
    "directories",
    "links",
    "path",
    "systemd",
    "units",
    "dropins",
    "name",
];

/// Refuses an object with a key twice, in any case, or with one of [`READ`] in another case.
pub(super) fn check(text: &str) -> Result<(), String> {
    let checked: Result<Checked, _> = serde_json::from_str(text);
    checked.map(|Checked| ()).map_err(|error| error.to_string())
}

/// A value without such keys.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self, A::Error> {
        let mut known = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            // Go folds letters that are not ASCII, such as the long s, too.
            let folded = key.to_uppercase().to_lowercase();
            if key != folded && READ.contains(&folded.as_str()) {
                return Err(A::Error::custom(format_args!("write {folded} in place of {key}")));
            }
            if !known.insert(folded) {
                return Err(A::Error::custom(format_args!(
                    "the key {key} occurs twice; remove one of them"
                )));
            }
            entries.next_value::<Self>()?;
        }
        Ok(self)
    }
}
