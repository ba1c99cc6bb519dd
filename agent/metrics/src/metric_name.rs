//! Family names derived from a driver's counter names, by node_exporter's rule
//! (`_*[^0-9A-Za-z_]+_*`).

/// Converts a name to a part of a metric name: each run of invalid characters, with the adjacent
/// underscores, becomes one underscore. An inserted underscore is not merged with the next run:
/// `a._.b` becomes `a__b`.
pub(super) fn sanitized(name: &str) -> String {
    let mut clean = String::with_capacity(name.len());
    // An inserted underscore stays.
    let mut kept = 0;
    let bad = |char: &char| !char.is_ascii_alphanumeric() && *char != '_';
    let mut chars = name.chars().peekable();
    while let Some(char) = chars.next() {
        if !bad(&char) {
            clean.push(char);
            continue;
        }
        clean.truncate(clean.trim_end_matches('_').len().max(kept));
        while chars.next_if(bad).is_some() {}
        while chars.next_if_eq(&'_').is_some() {}
        clean.push('_');
        kept = clean.len();
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_characters_are_replaced() {
        for (name, found) in [
            ("package", "package"),
            ("a_b", "a_b"),
            ("a__b", "a__b"),
            ("psys io", "psys_io"),
            ("a_-_b--c", "a_b_c"),
            ("a._.b", "a__b"),
            ("a_._._b", "a__b"),
            ("é-", "_"),
            ("", ""),
        ] {
            assert_eq!(sanitized(name), found, "{name:?}");
        }
    }
}
