//! Why a text is refused.

/// Beginning of the message if cloud-init may load the text.
pub(super) const NOT_SUPPORTED: &str = "virtfleetctl does not support ";
pub(super) const DIRECTIVES: &str = "directives (%YAML, %TAG); remove this line";

/// Why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Line, from 1.
    pub(crate) line: usize,
    /// Description of the problem.
    pub(crate) message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// PyYAML does not load the text.
pub(super) fn cannot_load<T>(line: usize, why: impl std::fmt::Display) -> Result<T> {
    let message = format!("cloud-init cannot load this: {why}");
    Err(Refusal { line, message })
}

/// PyYAML may load the text, but this module does not read it.
pub(crate) fn not_supported<T>(line: usize, what: impl std::fmt::Display) -> Result<T> {
    let message = format!("{NOT_SUPPORTED}{what}");
    Err(Refusal { line, message })
}
