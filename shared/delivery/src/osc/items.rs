//! The files and the unit that the agent needs, in Gardener's form.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::image::AgentImage;
use crate::{
    WANTED,
    payload::{File, Payload, UNIT},
};

/// Path of the binary that node-agent extracts. `install` copies it to [`crate::AGENT_PATH`], from
/// which the units run it: node-agent can replace this file at any time.
pub const EXTRACTED_PATH: &str = "/opt/virtfleet/gardener/virtfleet-agent";

/// The unit, with `@AGENT@` for the binary's path.
const UNIT_TEXT: &str = include_str!("../text/gardener-delivery.service");

/// Files and units for an OperatingSystemConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentItems {
    pub(super) files: Vec<Value>,
    pub(super) units: Vec<Value>,
}

impl AgentItems {
    /// The binary of `image`, the payload's settings, certificates and files, and the unit. The
    /// request for an agent is left out, because node-agent brings it.
    pub fn new(payload: &Payload, image: &AgentImage) -> Self {
        let binary = json!({
            "path": EXTRACTED_PATH,
            "permissions": 0o755,
            "content": {"imageRef": image.reference()},
        });
        let delivered = payload.files.iter().filter(|file| file.path != WANTED);
        let files: Vec<Value> = std::iter::once(binary).chain(delivered.map(inline)).collect();
        let paths: Vec<&Value> = files.iter().map(|file| &file["path"]).collect();
        let unit = json!({
            "name": UNIT,
            "command": "start",
            "enable": true,
            "content": UNIT_TEXT.replace("@AGENT@", EXTRACTED_PATH),
            "filePaths": paths,
        });
        Self {
            files,
            units: vec![unit],
        }
    }

    /// No items: those of an earlier admission are removed.
    pub(super) fn none() -> Self {
        Self {
            files: Vec::new(),
            units: Vec::new(),
        }
    }
}

/// A file with its content: text as it is, so that a person can read it, and base64 for the rest
/// (`FileCodecID` of Gardener: empty, or `b64`). Gardener's types always write `encoding`.
fn inline(file: &File) -> Value {
    let inline = match std::str::from_utf8(&file.content) {
        Ok(text) => json!({"encoding": "", "data": text}),
        Err(_) => json!({"encoding": "b64", "data": STANDARD.encode(&file.content)}),
    };
    json!({"path": file.path, "permissions": file.mode, "content": {"inline": inline}})
}
