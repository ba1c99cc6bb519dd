//! Texts and findings of one VM for its `GuestHealth`. They contain no measurements: those are in
//! the metrics, and each new value would rewrite the object.

use virtfleet_wire::finding::{Finding, Severity};

/// Maximum findings in a `GuestHealth`.
pub const MAX_FINDINGS: usize = 20;
/// Maximum characters of a message.
pub const MAX_MESSAGE_CHARS: usize = 500;

/// The most severe findings, each id once, most severe first: id, severity, message.
pub fn worst(all: &[Finding]) -> Vec<(String, Severity, String)> {
    let mut worst: Vec<&Finding> = all.iter().collect();
    worst.sort_by(|a, b| (b.severity, &a.id, &a.message).cmp(&(a.severity, &b.id, &b.message)));
    worst.dedup_by(|a, b| a.id == b.id && a.severity == b.severity);
    let named = worst.into_iter().take(MAX_FINDINGS);
    named
        .map(|one| (one.id.clone(), one.severity, bounded_message(&one.message)))
        .collect()
}

/// `text`, cut to [`MAX_MESSAGE_CHARS`].
pub fn bounded_message(text: &str) -> String {
    if text.chars().count() <= MAX_MESSAGE_CHARS {
        return text.to_owned();
    }
    text.chars().take(MAX_MESSAGE_CHARS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_limited_and_sorted_by_severity() {
        let make = |n: usize, severity| {
            Finding::new(&format!("f{n:03}"), severity, ("VM", "a"), "R", "é".repeat(2000))
        };
        let mut all: Vec<_> = (0..100).map(|n| make(n, Severity::Info)).collect();
        all.push(make(500, Severity::Critical));
        all.push(make(500, Severity::Critical));
        let worst = worst(&all);
        assert_eq!(
            (worst.len(), worst[0].0.as_str(), worst[1].0.as_str()),
            (MAX_FINDINGS, "f500", "f000")
        );
        assert_eq!(worst[0].2.chars().count(), MAX_MESSAGE_CHARS);
    }
}
