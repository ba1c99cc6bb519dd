//! A watch of a collection that notes when each change came.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Client;

/// One change, as the API server told it.
#[derive(Debug, Clone)]
pub struct Change {
    /// When the line was read.
    pub at: Instant,
    /// `ADDED`, `MODIFIED`, `DELETED`.
    pub kind: String,
    /// The object.
    pub object: Value,
}

/// A running watch. It ends when the API server or this value goes.
#[derive(Debug)]
pub struct Follow {
    changes: Receiver<Change>,
}

impl Follow {
    /// Begins now: nothing that was there before is told.
    pub fn begin(client: &Client, collection: &str) -> Result<Self> {
        let list = client.get(&format!("{collection}?limit=1"))?.ok()?;
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .context("resourceVersion")?;
        let lines = client.lines(&format!(
            "{collection}?watch=true&resourceVersion={version}&timeoutSeconds=3600"
        ))?;
        let (to, changes) = channel();
        thread::spawn(move || {
            for line in lines {
                let at = Instant::now();
                let Ok(mut event) = line.map(|line| serde_json::from_str::<Value>(&line).unwrap_or_default())
                else {
                    return;
                };
                let change = Change {
                    at,
                    kind: event["type"].as_str().unwrap_or_default().to_owned(),
                    object: event["object"].take(),
                };
                if to.send(change).is_err() {
                    return;
                }
            }
        });
        Ok(Self { changes })
    }

    /// The next change, or none within `patience`.
    pub fn next(&self, patience: Duration) -> Result<Option<Change>> {
        match self.changes.recv_timeout(patience) {
            Ok(change) => Ok(Some(change)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the watch has ended"),
        }
    }
}
