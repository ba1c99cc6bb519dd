//! What a process costs, read from procfs.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

/// CPU time of process `id` and all its threads so far.
///
/// From the scheduler's own count in nanoseconds (`/proc/ID/task/*/schedstat`, first field). A thread that has ended is not
/// in it any more; `/proc/ID/stat` counts those too, in ticks of 10 ms, so the larger of the two is nearer.
pub fn cpu(id: u32) -> Result<Duration> {
    let folder = format!("/proc/{id}/task");
    let mut nanoseconds = 0;
    for task in fs::read_dir(&folder).with_context(|| folder.clone())? {
        // A thread may end between the two reads.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        let field = text.split_whitespace().next().context("an empty schedstat")?;
        nanoseconds += field
            .parse::<u64>()
            .with_context(|| format!("schedstat {text:?}"))?;
    }
    let path = format!("/proc/{id}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // Behind the name in brackets, which may hold anything: state is field 3, utime 14 and stime 15 (proc(5)).
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |index: usize| fields.get(index - 3).and_then(|field| field.parse::<u64>().ok());
    let ticks = ticks(14)
        .zip(ticks(15))
        .with_context(|| format!("{path}: {stat:?}"))?;
    Ok(Duration::from_nanos(nanoseconds).max(Duration::from_millis(10 * (ticks.0 + ticks.1))))
}

/// Resident memory of process `id` in bytes, now.
pub fn resident(id: u32) -> Result<u64> {
    status(id, "VmRSS:")
}

/// The most that it ever was.
pub fn peak(id: u32) -> Result<u64> {
    status(id, "VmHWM:")
}

fn status(id: u32, key: &str) -> Result<u64> {
    let path = format!("/proc/{id}/status");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .with_context(|| format!("{path} has no {key}"))?;
    let kib = line
        .split_whitespace()
        .next()
        .and_then(|number| number.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path}: {key}{line}"))? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_very_process() {
        let id = std::process::id();
        let before = cpu(id).unwrap();
        let mut sum = 0_u64;
        while cpu(id).unwrap() < before + Duration::from_millis(30) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let (now, most) = (resident(id).unwrap(), peak(id).unwrap());
        assert!(now > 100 * 1024 && now <= most, "{now} {most}");
        cpu(0).unwrap_err();
    }
}
