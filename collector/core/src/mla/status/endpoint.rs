//! What may be shown of an endpoint's URL.

/// Host and port of `url`, without credentials, path and query: those may contain secrets. None if
/// `url` has no host, or has an `@` after its host: then the host may be part of a password that is
/// not escaped.
pub fn endpoint_host(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    let host = authority.rsplit('@').next()?;
    let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]%".contains(&b);
    let is_shown = !host.is_empty() && !after.contains('@') && host.bytes().all(is_host);
    is_shown.then(|| host.to_ascii_lowercase())
}
