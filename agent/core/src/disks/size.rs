//! Sizes in Kubernetes notation: a number of bytes, or a number with a suffix `Ki`, `Mi`, `Gi`,
//! `Ti`, `Pi`, `Ei`, `k`, `M`, `G`, `T`, `P` or `E`.

const UNITS: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// Parses a size in bytes; `None` if it is malformed, not a whole number of bytes, or too large.
pub fn parse(text: &str) -> Option<u64> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(word, unit)| Some((text.strip_suffix(word)?, *unit)))
        .unwrap_or((text, 1));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || number.ends_with('.') || fraction.len() > 18
    {
        return None;
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = if fraction.is_empty() {
        0
    } else {
        fraction.parse::<u128>().ok()?
    };
    let scaled = whole.parse::<u64>().ok().map(u128::from)? * scale + fraction;
    let bytes = scaled.checked_mul(u128::from(unit))?;
    if bytes % scale != 0 {
        return None;
    }
    u64::try_from(bytes / scale).ok()
}

/// Formats bytes in binary units with at most one decimal, e.g. `99.9 GiB`.
pub fn words(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} bytes");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        tenth => format!("{}.{tenth} {unit}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_parsed_like_kubernetes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("1073741824", Some(1 << 30)),
            ("100Gi", Some(100 << 30)),
            ("1.5Gi", Some(3 << 29)),
            ("0.5Ki", Some(512)),
            ("100G", Some(100_000_000_000)),
            ("2k", Some(2_000)),
            ("1Ti", Some(1 << 40)),
            ("15Ei", Some(15 << 60)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16Ei", None),
            ("0.3Ki", None),
            ("", None),
            ("Gi", None),
            (".5Gi", None),
            ("1.Gi", None),
            ("-1", None),
            ("+1", None),
            ("1 Gi", None),
            ("1gb", None),
            ("1K", None),
            ("1e3", None),
            ("1.1.1", None),
        ] {
            assert_eq!(parse(text), bytes, "{text}");
        }
    }
}
