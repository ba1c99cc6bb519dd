//! A real Prometheus with a past: promtool writes samples of the last week before it starts.

use std::{
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    parts, ports,
    process::{Launch, Process},
    stage::STAGE_TIMEOUT,
};

/// Interval of the samples in seconds.
const INTERVAL: u64 = 60;
/// Age of the first sample in seconds.
const WEEK: u64 = 7 * 24 * 3600;
/// promtool reads the whole file again for each block. By default a block has two hours.
const LONG_BLOCKS: &str = "--max-block-duration=168h";
/// Timeout of promtool.
const WRITE_TIMEOUT: Duration = Duration::from_mins(2);

/// Steal, as a share, in the hour that ended two hours ago; before and after it is [`STEAL`].
pub const STEAL_THEN: f64 = 0.5;
/// Steal at all other times.
pub const STEAL: f64 = 0.1;
/// CPU time in use at all times.
pub const USED: f64 = 0.3;

/// Starts a Prometheus in `folder` that has a week of CPU time and of pressure on memory for each
/// of these VMs (namespace, name), with these further labels, and scrapes nothing.
pub fn start(folder: &Path, vms: &[(&str, &str)], labels: &str) -> Result<(Process, SocketAddr)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let past = folder.join("past.om");
    fs::write(&past, open_metrics(vms, labels, now)?)?;
    let data = folder.join("tsdb-with-past");
    let (code, said) = Launch::new(parts::promtool()?)
        .args(["tsdb", "create-blocks-from", "openmetrics", LONG_BLOCKS])
        .args([&past, &data])
        .said(WRITE_TIMEOUT)?;
    ensure!(code == 0, "promtool: {said}");
    let settings = folder.join("prometheus-with-past.yml");
    fs::write(&settings, "global: {}\n")?;
    let address = ports::free()?;
    let mut process = Launch::new(parts::prometheus()?)
        .arg(format!("--config.file={}", settings.display()))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg(format!("--web.listen-address={address}"))
        .start(folder)?;
    process.wait_for_port(address, STAGE_TIMEOUT)?;
    Ok((process, address))
}

/// The samples in the text format of OpenMetrics.
fn open_metrics(vms: &[(&str, &str)], labels: &str, now: u64) -> Result<String> {
    let times: Vec<u64> = (now - WEEK..=now).step_by(usize::try_from(INTERVAL)?).collect();
    let mut steal = Vec::with_capacity(times.len());
    let mut sum = 0.0;
    for at in &times {
        let age = now - at;
        let is_high = (2 * 3600..3 * 3600).contains(&age);
        sum += if is_high { STEAL_THEN } else { STEAL } * INTERVAL as f64;
        steal.push(sum);
    }
    let first = *times.first().context("no sample")?;
    let passed = |at: u64| (at - first + INTERVAL) as f64;
    let mut text = String::new();
    writeln!(text, "# TYPE node_cpu_seconds counter")?;
    for (namespace, name) in vms {
        for mode in ["steal", "user", "idle"] {
            for (at, steal) in times.iter().zip(&steal) {
                let value = match mode {
                    "steal" => *steal,
                    "user" => USED * passed(*at),
                    _ => passed(*at) * (1.0 - USED) - steal,
                };
                writeln!(
                    text,
                    "node_cpu_seconds_total{{namespace=\"{namespace}\",name=\"{name}\",cpu=\"0\",mode=\"{mode}\",{labels}}} \
                     {value:.3} {at}"
                )?;
            }
        }
    }
    writeln!(text, "# TYPE node_pressure_memory_waiting_seconds counter")?;
    for (namespace, name) in vms {
        for at in &times {
            let value = passed(*at) / 20.0;
            writeln!(
                text,
                "node_pressure_memory_waiting_seconds_total{{namespace=\"{namespace}\",name=\"{name}\",{labels}}} {value:.3} {at}"
            )?;
        }
    }
    writeln!(text, "# EOF")?;
    Ok(text)
}
