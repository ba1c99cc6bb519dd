//! YAML as cloud-init reads it: by the safe loader of PyYAML, which is YAML 1.1 with rules of its
//! own. The parser of the other crates reads YAML 1.2, which allows tabs, for example, where PyYAML
//! drops the whole text.
//!
//! ```text
//! text ─ source::for_libyaml ─ libyaml ─▶ events ─ parse ─▶ YamlNode, checked by source and value
//! ```
//!
//! libyaml is a port of PyYAML's parser to C by its author, and `libyaml-safer` a port of that to
//! Rust. `source` has the rules in which they differ, `parse` and `value` those of PyYAML's
//! `composer.py` and `constructor.py`.
//!
//! Scalars keep their source text: what is inserted into a text must change no other node, and
//! equal source gives equal values. What this module accepts, PyYAML 6.0 loads, and cloud-init
//! stores as YAML and JSON; `tier2_cloud_init_loads_what_is_accepted` compares both. What PyYAML
//! loads and this module does not support is refused with [`refusal::NOT_SUPPORTED`].

mod parse;
mod refusal;
mod source;
mod value;

pub(crate) use libyaml_safer::ScalarStyle as Style;
pub(crate) use parse::{Content, YamlDocument, YamlNode};
pub(crate) use refusal::{Refusal, Result, not_supported};
pub(crate) use source::changed_line;
pub(crate) use value::Kind;

/// Loads a text.
///
/// # Errors
/// The line and the reason.
pub(crate) fn load(text: &str) -> Result<YamlDocument<'_>> {
    source::check_characters(text)?;
    parse::document(text, &source::for_libyaml(text))
}

#[cfg(test)]
mod tests;
