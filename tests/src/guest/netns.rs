//! An isolated network namespace of a scene.

use std::{
    fs, process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::process::Launch;

const DEADLINE: Duration = Duration::from_secs(20);
/// Name prefix; the creator's process id follows, so that namespaces of dead processes can be
/// found.
pub(super) const PREFIX: &str = "virtfleet-";

/// The namespace. Dropping it removes it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

fn ip<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    Launch::new("ip").args(words).text(DEADLINE).map(drop)
}

impl Namespace {
    /// Creates a namespace with only `lo`.
    pub(super) fn new() -> Result<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", process::id());
        ip(["netns", "add", &name]).context("a network namespace (needs root)")?;
        let own = Self { name };
        ip(["-n", &own.name, "link", "set", "lo", "up"])?;
        Ok(own)
    }

    /// Its name, for [`Launch::in_namespace`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates a tap device, with one or several queues; the host's end has the address
    /// `10.0.<net>.2/24`.
    pub(super) fn tap(&self, tap: &str, net: usize, several: bool) -> Result<()> {
        let name = self.name.as_str();
        let queues = several.then_some("multi_queue");
        ip(["-n", name, "tuntap", "add", tap, "mode", "tap"]
            .into_iter()
            .chain(queues))?;
        ip(["-n", name, "addr", "add", &format!("10.0.{net}.2/24"), "dev", tap])?;
        ip(["-n", name, "link", "set", tap, "up"])
    }

    /// Removes a tap device.
    pub(super) fn remove_tap(&self, tap: &str) -> Result<()> {
        ip(["-n", &self.name, "link", "del", tap])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(["netns", "del", &self.name]) {
            eprintln!("network namespace {}: {error:#}", self.name);
        }
    }
}

/// Removes the namespaces of processes that have ended.
pub(super) fn sweep() {
    let Ok(names) = fs::read_dir("/run/netns") else {
        return;
    };
    for name in names.flatten() {
        let name = name.file_name().to_string_lossy().into_owned();
        let maker = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if maker.is_some_and(|id| !fs::exists(format!("/proc/{id}")).unwrap_or(true))
            && let Err(error) = ip(["netns", "del", &name])
        {
            eprintln!("network namespace {name}: {error:#}");
        }
    }
}
