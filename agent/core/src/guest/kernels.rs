//! Whether a newer kernel than the running one is installed, where kernels are RPMs.

use std::cmp::Ordering;

/// Whether one of `installed` is newer than `running`. None when that cannot be said: the running one is not among them, or there is
/// nothing of its flavour to compare it with. Names are those of `uname -r`, e.g. `5.14.0-427.el9.x86_64`.
pub fn newer_installed<'a>(running: &str, installed: impl Iterator<Item = &'a str>) -> Option<bool> {
    let (version, flavour) = parts(running)?;
    let (mut is_there, mut newer) = (false, false);
    for name in installed {
        let Some((other, same)) = parts(name) else {
            continue;
        };
        if same != flavour {
            continue;
        }
        is_there |= name == running;
        newer |= compare(other, version) == Ordering::Greater;
    }
    is_there.then_some(newer)
}

/// Version with release, and what follows: the architecture with a variant, as `x86_64+rt`.
fn parts(name: &str) -> Option<(&str, &str)> {
    ["x86_64", "aarch64", "s390x", "ppc64le"]
        .iter()
        .find_map(|architecture| {
            let at = name.find(architecture)?;
            let version = name[..at].strip_suffix('.')?;
            Some((version, &name[at..]))
        })
}

/// The order of versions in RPM: stretches of digits by number, of letters by letter, digits above letters, `~` below everything.
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
    fn newer_ones_of_the_same_flavour_count() {
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
    fn the_order_of_rpm() {
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
        fn every_pair_has_an_order(one in "[0-9a-c.~é-]{0,12}", other in "[0-9a-c.~é-]{0,12}") {
            prop_assert_eq!(compare(&one, &other), compare(&other, &one).reverse());
            newer_installed(&one, [other.as_str()].into_iter());
        }
    }
}
