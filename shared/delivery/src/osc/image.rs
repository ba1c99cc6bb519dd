//! The container image with the agent.

use serde_json::{Value, json};

/// Path of the binary in the image of `make image`.
pub const PATH_IN_IMAGE: &str = "/usr/bin/virtfleet-agent";

/// The binary in a container image, from which node-agent extracts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentImage {
    image: String,
    path: String,
}

impl AgentImage {
    /// `image` has a tag or a digest, `path` is absolute.
    ///
    /// # Errors
    /// What is wrong, without the name of the flag.
    pub fn new(image: &str, path: &str) -> Result<Self, String> {
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let (_, last) = image.rsplit_once('/').unwrap_or(("", image));
        if !is_word(image) || !last.contains([':', '@']) || last.starts_with([':', '@']) {
            return Err(format!(
                "{image:?} is not an image with a tag or a digest, such as \
                 registry.example.org/virtfleet-agent@sha256:…"
            ));
        }
        let is_file = path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(|step| !matches!(step, "" | "." | "..")));
        if !is_word(path) || !is_file {
            return Err(format!(
                "{path:?} is not the absolute path of a file, such as {PATH_IN_IMAGE}"
            ));
        }
        Ok(Self {
            image: image.to_owned(),
            path: path.to_owned(),
        })
    }

    /// `FileContentImageRef` of Gardener.
    pub(super) fn reference(&self) -> Value {
        json!({"image": self.image, "filePathInImage": self.path})
    }
}
