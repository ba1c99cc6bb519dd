//! Compares the versions of the parts of an installation.

use std::cmp::Ordering;

use super::CheckResult;

pub(crate) const OWN: &str = env!("CARGO_PKG_VERSION");

/// Compares the version of a part with that of virtfleetctl. `upgrade` is the command for a part
/// that is older.
pub(crate) fn compare(what: &str, version: &str, upgrade: impl Into<String>) -> CheckResult {
    match order(version, OWN) {
        Some(Ordering::Equal) => CheckResult::ok(what, format!("{version}, as virtfleetctl")),
        Some(Ordering::Less) => {
            let detail = format!("{version} is older than virtfleetctl, which is {OWN}");
            CheckResult::warn(what, detail, upgrade)
        }
        Some(Ordering::Greater) => {
            let detail = format!("{version} is newer than virtfleetctl, which is {OWN}");
            let next = format!("install virtfleetctl {version}: docs/install.md");
            CheckResult::warn(what, detail, next)
        }
        None => CheckResult::warn(what, format!("{version:?} is not a version"), upgrade),
    }
}

/// Whether a version is newer than another one.
pub(crate) fn is_newer(version: &str, than: &str) -> bool {
    order(version, than) == Some(Ordering::Greater)
}

/// Order of two versions by their numbers; none if one of them is no version.
fn order(one: &str, other: &str) -> Option<Ordering> {
    Some(numbers(one)?.cmp(&numbers(other)?))
}

/// The numbers of `MAJOR.MINOR.PATCH`, whatever follows after `-` or `+`.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let numbers = version.split(['-', '+']).next()?.split('.');
    let numbers: Option<Vec<u64>> = numbers.map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (one, other, expected) in [
            ("0.1.0", "0.1.0-dev", Some(Ordering::Equal)),
            ("0.9.0", "0.10.0", Some(Ordering::Less)),
            ("1.0.0", "0.10.9+build", Some(Ordering::Greater)),
            ("1.0", "1.0.0", None),
            ("", "1.0.0", None),
        ] {
            assert_eq!(order(one, other), expected, "{one} {other}");
        }
        let status = |version: &str| compare("x", version, "helm upgrade").status;
        assert_eq!(status(OWN), CheckStatus::Ok);
        for other in ["0.0.1", "99.0.0", "latest"] {
            let found = compare("x", other, "helm upgrade");
            assert_eq!(found.status, CheckStatus::Warn, "{found:?}");
            let is_ours = found.next.starts_with("install virtfleetctl 99.0.0");
            assert_eq!(is_ours, other == "99.0.0", "{found:?}");
        }
    }
}
