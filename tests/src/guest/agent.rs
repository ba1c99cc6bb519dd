//! The QEMU guest agent, which runs commands in the guest.
//!
//! Its port is not read before it runs, and after a restore or a timeout half a message may be in
//! transit. After any failure the client therefore resynchronises: it sends a byte that resets the
//! agent's parser, and a number that the agent must return.

use std::{
    path::Path,
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::wire::{CLOSED, Lines, RESYNC};

/// Timeout of one ping. Pings are few, because the agent's port buffers a minute of them.
const KNOCK: Duration = Duration::from_secs(1);

/// Result of a command, as bytes.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) code: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// A connection to the agent.
#[derive(Debug)]
pub(super) struct Agent {
    lines: Lines,
    in_step: bool,
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

impl Agent {
    /// Connects to the agent's port, whether the agent runs or not.
    pub(super) fn connect(path: &Path) -> Result<Self> {
        Ok(Self {
            lines: Lines::connect(path, Duration::from_secs(20))?,
            in_step: false,
        })
    }

    /// Waits until the agent answers. `since` is when the caller began to wait, for the error.
    pub(super) fn wait(&mut self, since: Instant, deadline: Instant) -> Result<()> {
        loop {
            match self.knock(deadline.min(Instant::now() + KNOCK)) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline || format!("{error:#}").contains(CLOSED) => {
                    return Err(error.context(format!(
                        "the guest agent has not answered for {:.1} s",
                        since.elapsed().as_secs_f64()
                    )));
                }
                Err(_) => {}
            }
        }
    }

    fn knock(&mut self, deadline: Instant) -> Result<()> {
        // Unique, also among the numbers of other processes.
        let number = (u64::from(process::id()) << 20) | NUMBER.fetch_add(1, Ordering::Relaxed);
        let message = json!({"execute": "guest-sync", "arguments": {"id": number}});
        let mut bytes = vec![RESYNC];
        bytes.extend(format!("{message}\n").bytes());
        self.lines.send(&bytes, deadline)?;
        loop {
            if self.lines.next(deadline)?["return"] == number {
                self.in_step = true;
                return Ok(());
            }
        }
    }

    /// Sends one command and returns its answer.
    fn call(&mut self, command: &str, arguments: &Value, deadline: Instant) -> Result<Value> {
        if !self.in_step {
            self.wait(Instant::now(), deadline)?;
        }
        self.in_step = false;
        let message = json!({"execute": command, "arguments": arguments});
        self.lines.send(format!("{message}\n").as_bytes(), deadline)?;
        let mut answer = self.lines.next(deadline)?;
        self.in_step = true;
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => bail!(
                "{command}: {}",
                answer["error"]["desc"].as_str().unwrap_or_default()
            ),
        }
    }

    /// Runs a script with `/bin/sh` until the deadline; `input` is its standard input.
    pub(super) fn execute(&mut self, script: &str, input: Option<&[u8]>, deadline: Instant) -> Result<Done> {
        let mut arguments = json!({"path": "/bin/sh", "arg": ["-c", script], "capture-output": true});
        if let Some(input) = input {
            arguments["input-data"] = json!(STANDARD.encode(input));
        }
        let begun = self.call("guest-exec", &arguments, deadline)?;
        let arguments = json!({"pid": begun["pid"]});
        let mut pause = Duration::from_millis(10);
        loop {
            let state = self.call("guest-exec-status", &arguments, deadline)?;
            if state["exited"] == true {
                let bytes = |key: &str| {
                    STANDARD
                        .decode(state[key].as_str().unwrap_or_default())
                        .with_context(|| format!("the guest agent's {key}"))
                };
                let signal = state["signal"].as_i64().map(|signal| 128 + signal);
                let code = state["exitcode"].as_i64().or(signal).unwrap_or(-1);
                return Ok(Done {
                    code: i32::try_from(code).unwrap_or(-1),
                    stdout: bytes("out-data")?,
                    stderr: bytes("err-data")?,
                });
            }
            anyhow::ensure!(Instant::now() < deadline, "it still runs");
            // There is no event for the end of a command, and each status query costs CPU time of
            // the guest.
            std::thread::park_timeout(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(500));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_error_has_the_whole_time_of_the_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut agent = Agent::connect(&path).unwrap();
        let since = Instant::now().checked_sub(Duration::from_secs(7)).unwrap();
        let text = format!("{:#}", agent.wait(since, Instant::now()).unwrap_err());
        let rest = text.strip_prefix("the guest agent has not answered for ");
        let seconds = rest.and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(seconds.parse::<f64>().unwrap() >= 7.0, "{text}");
    }
}
