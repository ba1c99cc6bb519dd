//! `/etc/os-release` (systemd: os-release(5)).

use std::borrow::Cow;

/// Parses the assignments as `(key, value)`, without quotes and escapes. Other lines are ignored,
/// as the manual requires.
pub fn assignments(text: &str) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
    text.lines().filter_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        let good = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        good.then(|| (key, unquote(value)))
    })
}

/// Removes shell quoting: text in single quotes is literal; elsewhere a backslash makes the next
/// character literal.
fn unquote(value: &str) -> Cow<'_, str> {
    if let Some(inside) = value.strip_prefix('\'') {
        return Cow::Borrowed(inside.strip_suffix('\'').unwrap_or(inside));
    }
    let inside = match value.strip_prefix('"') {
        // Cut at the first quote that is not escaped.
        Some(inside) => {
            let mut escaped = false;
            let end = inside.bytes().position(|byte| {
                let closes = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                closes
            });
            &inside[..end.unwrap_or(inside.len())]
        }
        None => value,
    };
    if !inside.contains('\\') {
        return Cow::Borrowed(inside);
    }
    let mut plain = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    Cow::Owned(plain)
}

/// Returns the leading `MAJOR.MINOR` of a `VERSION_ID` as a number, if it begins with a digit.
pub fn version(version_id: &str) -> Option<f64> {
    let digits = |text: &str| {
        text.bytes()
            .position(|b| !b.is_ascii_digit())
            .unwrap_or(text.len())
    };
    let major = digits(version_id);
    let end = match version_id[major..].strip_prefix('.') {
        Some(rest) if major > 0 => major + 1 + digits(rest),
        _ => major,
    };
    version_id[..end].parse().ok()
}

/// Converts a `SUPPORT_END` date, `YYYY-MM-DD`, to seconds since 1970 at its start in UTC.
pub fn support_end(date: &str) -> Option<i64> {
    let bytes = date.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let number = |from: usize, to: usize| {
        bytes[from..to].iter().try_fold(0_i64, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if day < 1 || day > longest {
        return None;
    }
    // If years begin in March, the leap day is the last day, and no table is needed.
    let year = year - i64::from(month <= 2);
    let month = (month + 9) % 12;
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (month * 153 + 2) / 5
        + day
        - 1;
    Some((days - 719_468) * 86_400)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::hostile, *};

    const SAMPLE: &str =
        "# comment\nNAME=\"Ubuntu \\\"x\\\"\"\nID=ubuntu\nVERSION='24.04 (a)'\nEMPTY=\nnonsense\n1 2=3\n";

    #[test]
    fn quotes_and_comments() {
        let all: Vec<_> = assignments(SAMPLE).map(|(k, v)| (k, v.into_owned())).collect();
        let expected = [
            ("NAME", "Ubuntu \"x\""),
            ("ID", "ubuntu"),
            ("VERSION", "24.04 (a)"),
            ("EMPTY", ""),
        ];
        assert_eq!(all, expected.map(|(k, v)| (k, v.to_owned())));
        assert_eq!(assignments("A=\"cut off").next().unwrap().1, "cut off");
    }

    #[test]
    fn versions() {
        for (text, number) in [
            ("24.04", Some(24.04)),
            ("12", Some(12.0)),
            ("41.20240101.3.0", Some(41.202_401_01)),
            ("7.", Some(7.0)),
            ("rolling", None),
            ("", None),
            (".5", None),
        ] {
            assert_eq!(version(text), number, "{text}");
        }
    }

    #[test]
    fn dates() {
        for (text, seconds) in [
            ("1970-01-01", Some(0)),
            ("2027-05-14", Some(1_810_252_800)),
            ("2024-02-29", Some(1_709_164_800)),
            ("1969-12-31", Some(-86_400)),
            ("2023-02-29", None),
            ("2023-13-01", None),
            ("2023-1-01", None),
            ("2023-01-00", None),
            ("20é3-01-1", None),
            ("", None),
        ] {
            assert_eq!(support_end(text), seconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in hostile::text(SAMPLE)) {
            let _ = assignments(&text).count();
            let _ = version(&text);
            let _ = support_end(&text);
        }
        #[test]
        fn days_follow_each_other(day in 1..28_u8, month in 1..13_u8, year in 1..9999_u16) {
            let at = |day: u8| support_end(&format!("{year:04}-{month:02}-{day:02}")).unwrap();
            prop_assert_eq!(at(day + 1) - at(day), 86_400);
        }
    }
}
