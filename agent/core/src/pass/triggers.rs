//! The names in `/run/virtfleet/ask`. The agent without rights may write there, so they are not believed to be sane.

/// The most names that a record keeps.
pub const MOST_TRIGGERS: usize = 16;
const LONGEST: usize = 64;

/// The names as they are recorded: sorted, each once, [`MOST_TRIGGERS`] at the most; one that nobody of ours writes is
/// recorded as `other`.
pub fn trigger_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let sane = |name: &&str| {
        !name.is_empty()
            && name.len() <= LONGEST
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
    names.truncate(MOST_TRIGGERS);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_bounded_and_sane() {
        let long = "x".repeat(65);
        assert_eq!(
            trigger_names(["settings", "device", "device", "a\u{1b}[31m", "", &long]),
            ["device", "other", "settings"]
        );
        let many: Vec<String> = (0..100).map(|i| format!("n{i:03}")).collect();
        assert_eq!(
            trigger_names(many.iter().map(String::as_str)).len(),
            MOST_TRIGGERS
        );
    }
}
