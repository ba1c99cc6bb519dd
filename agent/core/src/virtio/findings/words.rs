//! Formats numbers and names for messages.

/// Maximum number of names in a sentence.
const MAX_NAMES: usize = 8;

/// Formats CPUs in Linux' list format, `0-3,8`, in the given order; `none` if empty.
pub fn ranges(cpus: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*cpu) => *last = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let words: Vec<String> = runs
        .iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(",")
    }
}

/// Lists the first names, and the number of the others: `eth0, eth1 and 62 more`.
pub(super) fn few<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let mut all = all.into_iter();
    let words: Vec<String> = all.by_ref().take(MAX_NAMES).map(|one| one.to_string()).collect();
    let shown = words.join(", ");
    match all.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `1 queue`, `2 queues`.
pub(super) fn count(number: impl Into<u64>, what: &str) -> String {
    match number.into() {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// Device with its guest devices: `virtio2 (eth0)`.
pub(super) fn named(device: &str, parts: &[String]) -> String {
    if parts.is_empty() {
        device.to_owned()
    } else {
        format!("{device} ({})", few(parts))
    }
}

/// Percentage with one decimal: `97.5 %`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let thousandths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}
