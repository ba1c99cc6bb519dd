//! A file of a profile.

use serde_json::{Value, json};

/// A file of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProfileFile {
    /// Its absolute path.
    pub(super) path: String,
    /// Its permissions: the octal digits read as a decimal number, as OSM requires.
    pub(super) permissions: u32,
    /// `b64` or `gz+b64`, or none for Ignition.
    pub(super) encoding: Option<&'static str>,
    /// Its content: encoded for `gz+b64`, otherwise with escaped template marks.
    pub(super) data: String,
}

impl ProfileFile {
    pub(super) fn to_json(&self) -> Value {
        let mut inline = json!({"data": self.data});
        if let Some(encoding) = self.encoding {
            inline["encoding"] = encoding.into();
        }
        json!({"path": self.path, "permissions": self.permissions, "content": {"inline": inline}})
    }
}
