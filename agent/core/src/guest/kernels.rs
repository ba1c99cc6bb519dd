//! Detects an installed kernel that is newer than the running one, for kernels in RPMs.

use std::cmp::Ordering;

/// Whether one of `installed` is newer than `running`. `None` if that is unknown: the running
/// kernel is not installed, or no other kernel of its flavour is. Names are those of `uname -r`,
/// e.g. `5.14.0-427.el9.x86_64`.
pub fn newer_installed<'a>(running: &str, installed: impl Iterator<Item = &'a str>) -> Option<bool> {
    let (version, variant) = parts(running)?;
    let (mut is_there, mut newer) = (false, false);
    for name in installed {
        let Some((other, other_variant)) = parts(name) else {
            continue;
        };
        if other_variant != variant || !builds(other).eq(builds(version)) {
            continue;
        }
        is_there |= name == running;
        newer |= compare(other, version) == Ordering::Greater;
    }
    is_there.then_some(newer)
}

/// Splits off the architecture with its variant, as in `x86_64+rt`.
fn parts(name: &str) -> Option<(&str, &str)> {
    ["x86_64", "aarch64", "s390x", "ppc64le"]
        .iter()
        .find_map(|architecture| {
            let at = name.find(architecture)?;
            let version = name[..at].strip_suffix('.')?;
            Some((version, &name[at..]))
        })
}

/// Returns the letters of a version's release, which identify the vendor's build: `el` for `el9_4`,
/// `el` and `uek` for `el8uek`, `rt` and `el` for `rt7.285.el8`. Kernels of different builds can be
/// installed side by side; a newer kernel of another build is not the next one to boot. Numbers are
/// left out, so that releases of the distribution compare as the same build.
fn builds(version: &str) -> impl Iterator<Item = &str> {
    let release = version.split_once('-').map_or("", |(_, release)| release);
    release
        .split('.')
        .filter(|part| !is_snapshot(part))
        .flat_map(|part| part.split(|c: char| !c.is_ascii_alphabetic()))
        .filter(|letters| !letters.is_empty())
}

/// Whether a part of a release is a snapshot date or commit, as in Fedora before a final version:
/// `rc2`, `git3`, `20240605git32f88d65f01b` or a commit hash.
fn is_snapshot(part: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(number) = part.strip_prefix("rc") {
        return is_number(number);
    }
    match part.split_once("git") {
        Some((day, commit)) => is_number(day) && is_hex(commit),
        None => part.len() >= 12 && is_hex(part),
    }
}

/// Compares versions like RPM: digits by number, letters by text, digits above letters, `~` below
/// all.
fn compare(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        let skip = |text: &[u8]| {
            text.iter()
                .take_while(|byte| !byte.is_ascii_alphanumeric() && **byte != b'~')
                .count()
        };
        one = &one[skip(one)..];
        other = &other[skip(other)..];
        match (one.first(), other.first()) {
            (Some(b'~'), Some(b'~')) => {
                (one, other) = (&one[1..], &other[1..]);
                continue;
            }
            (Some(b'~'), _) => return Ordering::Less,
            (_, Some(b'~')) => return Ordering::Greater,
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) if a.is_ascii_digit() != b.is_ascii_digit() => {
                return if a.is_ascii_digit() {
                    Ordering::Greater
                } else {
                    Ordering::Less
                };
            }
            (Some(_), Some(_)) => {}
        }
        let stretch = |text: &[u8]| {
            let digits = text.first().is_some_and(u8::is_ascii_digit);
            text.iter()
                .take_while(|byte| byte.is_ascii_alphanumeric() && byte.is_ascii_digit() == digits)
                .count()
        };
        let (a, b) = (stretch(one), stretch(other));
        let (mut left, mut right) = (&one[..a], &other[..b]);
        (one, other) = (&one[a..], &other[b..]);
        let order = if left.first().is_some_and(u8::is_ascii_digit) {
            let zeroes = |text: &[u8]| text.iter().take_while(|byte| **byte == b'0').count();
            left = &left[zeroes(left)..];
            right = &right[zeroes(right)..];
            left.len().cmp(&right.len()).then_with(|| left.cmp(right))
        } else {
            left.cmp(right)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn newer_kernels_of_the_same_flavour_are_found() {
        let running = "5.14.0-427.13.1.el9_4.x86_64";
        for (installed, newer) in [
            ([running].as_slice(), Some(false)),
            (&[running, "5.14.0-427.20.1.el9_4.x86_64"], Some(true)),
            (&[running, "5.14.0-362.8.1.el9_3.x86_64"], Some(false)),
            (&[running, "5.14.0-503.11.1.el9_5.x86_64+debug"], Some(false)),
            (&["5.14.0-503.11.1.el9_5.x86_64"], None),
            (&[], None),
            (&[running, "extra", "6.8.0-60-generic"], Some(false)),
        ] {
            assert_eq!(
                newer_installed(running, installed.iter().copied()),
                newer,
                "{installed:?}"
            );
        }
        assert_eq!(
            newer_installed("6.8.0-60-generic", ["6.8.0-60-generic"].into_iter()),
            None
        );
    }

    #[test]
    fn kernels_are_compared_within_their_build() {
        let stock = "4.18.0-513.el8.x86_64";
        let uek = "5.15.0-204.147.6.2.el8uek.x86_64";
        let realtime = "4.18.0-513.5.1.rt7.307.el8.x86_64";
        let elrepo = "6.1.75-1.el9.elrepo.x86_64";
        for (running, installed, newer) in [
            (stock, [stock, uek].as_slice(), false),
            (stock, &[stock, uek, "4.18.0-513.5.1.el8_9.x86_64"], true),
            (uek, &[uek, "6.0.0-1.el8.x86_64"], false),
            (uek, &[uek, stock, "5.15.0-300.163.18.el8uek.x86_64"], true),
            (stock, &[stock, realtime], false),
            (realtime, &[realtime, "4.18.0-553.el8_10.x86_64"], false),
            (realtime, &[realtime, "4.18.0-553.rt7.342.el8_10.x86_64"], true),
            ("5.14.0-427.el9.x86_64", &["5.14.0-427.el9.x86_64", elrepo], false),
            (elrepo, &[elrepo, "6.1.76-1.el9.elrepo.x86_64"], true),
            // An upgrade to the next release of the distribution, and to a final version.
            (stock, &[stock, "5.14.0-427.el9_4.x86_64"], true),
            (
                "6.8.5-301.fc40.x86_64",
                &["6.8.5-301.fc40.x86_64", "6.9.1-200.fc41.x86_64"],
                true,
            ),
            (
                "6.10.0-0.rc2.20240605git32f88d65f01b.27.fc41.x86_64",
                &[
                    "6.10.0-0.rc2.20240605git32f88d65f01b.27.fc41.x86_64",
                    "6.10.0-1.fc41.x86_64",
                ],
                true,
            ),
            (
                "6.12.0-0.rc0.adc218676eef.7.fc42.aarch64",
                &[
                    "6.12.0-0.rc0.adc218676eef.7.fc42.aarch64",
                    "6.12.0-0.rc1.19.fc42.aarch64",
                ],
                true,
            ),
        ] {
            assert_eq!(
                newer_installed(running, installed.iter().copied()),
                Some(newer),
                "{running} beside {installed:?}"
            );
        }
    }

    #[test]
    fn versions_sort_like_rpm() {
        for (one, other, order) in [
            ("1.0", "1.0", Ordering::Equal),
            ("1.10", "1.9", Ordering::Greater),
            ("1.0~rc1", "1.0", Ordering::Less),
            ("1.0.a", "1.0.1", Ordering::Less),
            ("1.0", "1.0.1", Ordering::Less),
            ("1.05", "1.5", Ordering::Equal),
            ("2.el9", "2.el10", Ordering::Less),
        ] {
            assert_eq!(compare(one, other), order, "{one} {other}");
            assert_eq!(compare(other, one), order.reverse());
        }
    }

    proptest! {
        #[test]
        fn no_name_panics(name in "[0-9a-z.~é_-]{0,16}\\.x86_64[+a-z]{0,3}") {
            let newer = newer_installed(&name, [name.as_str()].into_iter());
            prop_assert_eq!(newer, Some(false));
        }

        #[test]
        fn every_pair_has_an_order(one in "[0-9a-c.~é-]{0,12}", other in "[0-9a-c.~é-]{0,12}") {
            prop_assert_eq!(compare(&one, &other), compare(&other, &one).reverse());
            newer_installed(&one, [other.as_str()].into_iter());
        }
    }
}
