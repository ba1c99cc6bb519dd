//! CPU time, memory and disk writes of a process, read from procfs.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use procfs_core::{
    FromBufRead as _, FromRead as _,
    process::{Io, Schedstat, Stat, Status},
};

/// Length of a clock tick of `/proc/PID/stat` (`sysconf(3)`, `_SC_CLK_TCK`: 100 on all current
/// Linux systems).
const TICK: Duration = Duration::from_millis(10);

/// CPU time of process `id` and all its threads so far.
///
/// `/proc/ID/task/*/schedstat` counts in nanoseconds, but omits threads that have ended;
/// `/proc/ID/stat` includes them, but counts in ticks. The larger of the two values is the better
/// one.
///
/// # Errors
/// There is no such process, or its files cannot be parsed.
pub fn cpu(id: u32) -> Result<Duration> {
    let folder = format!("/proc/{id}/task");
    let mut nanoseconds = 0;
    for task in fs::read_dir(&folder).with_context(|| folder.clone())? {
        // A thread may end between the two reads.
        let Ok(text) = fs::read(task?.path().join("schedstat")) else {
            continue;
        };
        nanoseconds += Schedstat::from_read(text.as_slice())?.sum_exec_runtime;
    }
    let path = format!("/proc/{id}/stat");
    let text = fs::read(&path).with_context(|| path.clone())?;
    let stat = Stat::from_read(text.as_slice()).with_context(|| path)?;
    let ticks = u32::try_from(stat.utime + stat.stime)?;
    Ok(Duration::from_nanos(nanoseconds).max(TICK * ticks))
}

/// CPU time of process `id` so far in user mode and in the kernel, in clock ticks.
///
/// # Errors
/// There is no such process, or its file cannot be parsed.
pub fn modes(id: u32) -> Result<[Duration; 2]> {
    let path = format!("/proc/{id}/stat");
    let text = fs::read(&path).with_context(|| path.clone())?;
    let stat = Stat::from_read(text.as_slice()).with_context(|| path)?;
    Ok([
        TICK * u32::try_from(stat.utime)?,
        TICK * u32::try_from(stat.stime)?,
    ])
}

/// Current resident memory of process `id` in bytes.
///
/// # Errors
/// There is no such process, or its file cannot be parsed.
pub fn resident(id: u32) -> Result<u64> {
    let kib = status(id)?.vmrss.context("VmRSS is missing")?;
    Ok(kib * 1024)
}

/// Private memory of process `id` in bytes: resident, not of a file and not shared (`RssAnon`).
///
/// # Errors
/// There is no such process, or its file cannot be parsed.
pub fn private(id: u32) -> Result<u64> {
    let kib = status(id)?.rssanon.context("RssAnon is missing")?;
    Ok(kib * 1024)
}

/// Peak resident memory of process `id` so far, in bytes.
///
/// # Errors
/// There is no such process, or its file cannot be parsed.
pub fn peak(id: u32) -> Result<u64> {
    let kib = status(id)?.vmhwm.context("VmHWM is missing")?;
    Ok(kib * 1024)
}

/// Bytes that process `id` has written to disks so far, in whole pages. A page that is removed
/// before it reaches the disk counts, too; one of a filesystem in memory does not.
///
/// # Errors
/// There is no such process, or its file cannot be parsed.
pub fn written(id: u32) -> Result<u64> {
    let path = format!("/proc/{id}/io");
    let text = fs::read(&path).with_context(|| path.clone())?;
    let io = Io::from_buf_read(text.as_slice()).with_context(|| path)?;
    Ok(io.write_bytes)
}

fn status(id: u32) -> Result<Status> {
    let path = format!("/proc/{id}/status");
    let text = fs::read(&path).with_context(|| path.clone())?;
    Status::from_buf_read(text.as_slice()).with_context(|| path)
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
        let own = private(id).unwrap();
        assert!(own > 10 * 1024 && own < now, "{own} {now}");
        cpu(0).unwrap_err();
        written(id).unwrap();
        written(0).unwrap_err();
    }
}
