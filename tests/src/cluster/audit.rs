//! Requests to an API server, read from its audit log.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Seek as _, SeekFrom},
};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{audit_policy::FILE, server::ApiServer};

/// A position in the audit log of an API server.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// End of the log, in bytes.
    offset: u64,
    at: Timestamp,
}

impl Mark {
    /// Before the first request.
    pub const BEGIN: Self = Self {
        offset: 0,
        at: Timestamp::UNIX_EPOCH,
    };
}

/// One request.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Plural name, e.g. `nodes`; empty for a non-resource path.
    pub resource: String,
    /// E.g. `status`; may be empty.
    pub subresource: String,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
    /// The user's name.
    pub user: String,
    /// HTTP status code of the answer. With 0 or 500 and above, the request may or may not have
    /// taken effect.
    pub code: u16,
    /// The client's User-Agent header.
    pub user_agent: String,
    /// Path and query.
    pub uri: String,
    /// Arrival time, with a resolution of microseconds.
    pub received: Timestamp,
    /// Request body of patches and updates of Nodes, and of patches of GuestHealth; else null.
    pub request: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Line {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user_agent: String,
    request_received_timestamp: Timestamp,
    user: UserInfo,
    object_ref: Reference,
    response_status: Status,
    request_object: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UserInfo {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Reference {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
}

impl ApiServer {
    /// All requests so far, in the order of their answers; a watch is listed when it begins. The
    /// log continues across restarts of the server.
    pub fn audit(&self) -> Result<Vec<Entry>> {
        self.audit_since(Mark::BEGIN)
    }

    /// The current position, for [`ApiServer::audit_since`].
    pub fn audit_mark(&self) -> Result<Mark> {
        let path = self.folder().join(FILE);
        let found = std::fs::metadata(&path).with_context(|| path.display().to_string())?;
        Ok(Mark {
            offset: found.len(),
            at: Timestamp::now(),
        })
    }

    /// The requests that were received and answered after `mark`. A line is written after its
    /// answer and may appear later than the request's effect, so the position in the log alone does
    /// not separate the requests.
    pub fn audit_since(&self, mark: Mark) -> Result<Vec<Entry>> {
        let path = self.folder().join(FILE);
        let mut file = File::open(&path).with_context(|| path.display().to_string())?;
        file.seek(SeekFrom::Start(mark.offset))?;
        let mut reader = BufReader::new(file);
        let mut entries = Vec::new();
        let mut text = String::new();
        // A last line without a newline is still being written.
        while reader.read_line(&mut text)? > 0 && text.ends_with('\n') {
            let line: Line =
                serde_json::from_str(&text).with_context(|| format!("{}: {text}", path.display()))?;
            // A watch has two lines: one at its start and one at its end.
            let counts = match line.stage.as_str() {
                "ResponseStarted" => line.verb == "watch",
                // After a panic the connection closes without an answer; the request may have taken
                // effect.
                "ResponseComplete" | "Panic" => line.verb != "watch",
                _ => false,
            };
            if counts && line.request_received_timestamp >= mark.at {
                entries.push(entry(line));
            }
            text.clear();
        }
        Ok(entries)
    }
}

fn entry(line: Line) -> Entry {
    Entry {
        verb: line.verb,
        resource: line.object_ref.resource,
        subresource: line.object_ref.subresource,
        namespace: line.object_ref.namespace,
        name: line.object_ref.name,
        user: line.user.username,
        code: line.response_status.code,
        user_agent: line.user_agent,
        uri: line.request_uri,
        received: line.request_received_timestamp,
        request: line.request_object,
    }
}
