//! Names of the files in `/run/virtfleet/ask`. The unprivileged agent can write there, so the names
//! are validated.

/// Maximum number of names in a record.
pub const MAX_TRIGGERS: usize = 16;
const MAX_NAME_LENGTH: usize = 64;

/// Returns the names for the record: sorted, without duplicates, at most [`MAX_TRIGGERS`]. A name
/// that the agent never writes is recorded as `other`.
pub fn trigger_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let sane = |name: &&str| {
        !name.is_empty()
            && name.len() <= MAX_NAME_LENGTH
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let mut names: Vec<String> = names
        .into_iter()
        .map(|name| {
            if sane(&name) {
                name.to_owned()
            } else {
                "other".to_owned()
            }
        })
        .collect();
    names.sort();
    names.dedup();
    names.truncate(MAX_TRIGGERS);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_bounded_and_validated() {
        let long = "x".repeat(65);
        assert_eq!(
            trigger_names(["settings", "device", "device", "a\u{1b}[31m", "", &long]),
            ["device", "other", "settings"]
        );
        let many: Vec<String> = (0..100).map(|i| format!("n{i:03}")).collect();
        assert_eq!(trigger_names(many.iter().map(String::as_str)).len(), MAX_TRIGGERS);
    }
}
