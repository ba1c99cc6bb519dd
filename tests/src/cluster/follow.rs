//! A watch of a collection that records the time of each change.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Client;

/// One change, as received from the API server.
#[derive(Debug, Clone)]
pub struct Change {
    /// When the line was read.
    pub at: Instant,
    /// `ADDED`, `MODIFIED`, `DELETED`.
    pub kind: String,
    /// The object.
    pub object: Value,
}

/// The objects of a collection, read by a watch that begins with all of them (a streaming list,
/// `sendInitialEvents`). Fails with 422 on a server that does not support it.
pub fn streamed_list(client: &Client, collection: &str) -> Result<Vec<Value>> {
    let lines = client.lines(&format!(
        "{collection}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
         &timeoutSeconds=60"
    ))?;
    let mut objects = Vec::new();
    for line in lines {
        let mut event: Value = serde_json::from_str(&line?)?;
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        let object = event["object"].take();
        match kind.as_str() {
            "ADDED" => objects.push(object),
            "BOOKMARK" if object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true" => {
                return Ok(objects);
            }
            _ => anyhow::bail!("{kind} before the end of the list: {object}"),
        }
    }
    anyhow::bail!("{collection}: the watch has ended before the list")
}

/// A running watch. It ends when the API server stops or this value is dropped.
#[derive(Debug)]
pub struct Follow {
    changes: Receiver<Change>,
}

impl Follow {
    /// Starts a watch. Objects that exist already are not reported.
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

    /// The next change, or `None` if there is none within `patience`.
    pub fn next(&self, patience: Duration) -> Result<Option<Change>> {
        match self.changes.recv_timeout(patience) {
            Ok(change) => Ok(Some(change)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the watch has ended"),
        }
    }
}
