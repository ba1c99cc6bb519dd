//! What the targets make of their bytes.

/// The bytes as the host reads a text: bytes that are not UTF-8 are replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Number of items that a parser returns without an error.
pub(super) fn drain<T, E>(items: impl Iterator<Item = Result<T, E>>) -> usize {
    items.flatten().count()
}
