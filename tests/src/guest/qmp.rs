//! QMP, QEMU's monitor protocol.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::wire::Lines;
use crate::wait::eventually;

/// Timeout of one command. Operations that take longer are started by one command and polled by
/// another.
const DEADLINE: Duration = Duration::from_mins(1);

/// A connection to the monitor.
#[derive(Debug)]
pub(super) struct Qmp {
    lines: Lines,
    events: Vec<Value>,
}

impl Qmp {
    /// Connects and negotiates the protocol without optional capabilities.
    pub(super) fn connect(path: &Path) -> Result<Self> {
        let mut lines = Lines::connect(path, DEADLINE)?;
        let greeting = lines.next(Instant::now() + DEADLINE).context("QMP's greeting")?;
        anyhow::ensure!(greeting.get("QMP").is_some(), "not QMP's greeting: {greeting}");
        let mut own = Self {
            lines,
            events: Vec::new(),
        };
        own.call("qmp_capabilities", json!({}))?;
        Ok(own)
    }

    /// Sends one command and returns its answer. Keeps events that arrive meanwhile for
    /// [`Qmp::wait_event`].
    pub(super) fn call(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let deadline = Instant::now() + DEADLINE;
        let message = json!({"execute": command, "arguments": arguments});
        self.lines
            .send(format!("{message}\n").as_bytes(), deadline)
            .with_context(|| format!("QMP {message}"))?;
        loop {
            let mut answer = self
                .lines
                .next(deadline)
                .with_context(|| format!("QMP {message}"))?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                bail!("QMP {message}: {}", error["desc"].as_str().unwrap_or_default());
            }
            self.events.push(answer);
        }
    }

    /// Waits for an event whose data satisfies `is`, and discards the events before it.
    pub(super) fn wait_event(
        &mut self,
        name: &str,
        deadline: Duration,
        is: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let until = Instant::now() + deadline;
        loop {
            if let Some(at) = self
                .events
                .iter()
                .position(|event| event["event"] == name && is(&event["data"]))
            {
                self.events.drain(..=at);
                return Ok(());
            }
            let event = self
                .lines
                .next(until)
                .with_context(|| format!("QEMU's event {name}"))?;
            self.events.push(event);
        }
    }

    /// Saves memory and devices to `file`, from which another QEMU with the same arguments can
    /// resume. The guest is stopped afterwards.
    pub(super) fn save(&mut self, file: &Path) -> Result<()> {
        self.call("stop", json!({}))?;
        self.mapped_ram()?;
        self.call("migrate-set-parameters", json!({"max-bandwidth": 1_u64 << 40}))?;
        self.call("migrate", json!({"uri": format!("file:{}", file.display())}))?;
        self.migrated().context("save the guest")
    }

    /// Restores them from `file` into a QEMU that waits for an incoming migration.
    pub(super) fn restore(&mut self, file: &Path) -> Result<()> {
        self.mapped_ram()?;
        self.call(
            "migrate-incoming",
            json!({"uri": format!("file:{}", file.display())}),
        )?;
        self.migrated().context("restore the guest")?;
        eventually(DEADLINE, "the devices' state", || {
            let status = self.call("query-status", json!({}))?;
            anyhow::ensure!(status["status"] != "inmigrate", "{status}");
            Ok(())
        })?;
        self.call("cont", json!({})).map(drop)
    }

    /// Enables the format with a fixed offset for every page, written and read by several threads.
    fn mapped_ram(&mut self) -> Result<()> {
        let on = |name| json!({"capability": name, "state": true});
        let capabilities = json!({"capabilities": [on("mapped-ram"), on("multifd")]});
        self.call("migrate-set-capabilities", capabilities).map(drop)
    }

    fn migrated(&mut self) -> Result<()> {
        eventually(DEADLINE, "the end of a migration", || {
            let state = self.call("query-migrate", json!({}))?;
            match state["status"].as_str() {
                Some("completed") => Ok(Ok(())),
                Some("failed" | "cancelled") => {
                    let why = state["error-desc"].as_str().unwrap_or("QEMU says no more");
                    Ok(Err(anyhow::anyhow!("{why}")))
                }
                _ => bail!("{state}"),
            }
        })?
    }
}
