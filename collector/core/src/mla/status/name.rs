//! Names of streams.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::ClusterName;

/// Text of [`StreamName::Fleet`].
const FLEET: &str = "fleet";
/// Start of the text of [`StreamName::Tenant`].
const TENANT_PREFIX: &str = "cluster/";

/// Names a stream of samples: `cluster/NAME`, or `fleet`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StreamName {
    /// The operator's stream, with the samples of all VMs.
    Fleet,
    /// The stream of a user cluster, with the samples of its VMs.
    Tenant(ClusterName),
}

impl StreamName {
    /// The user cluster whose samples the stream has; none: those of all.
    pub fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::Fleet => None,
            Self::Tenant(cluster) => Some(cluster),
        }
    }
}

/// Text that names no stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidStreamName(String);

impl fmt::Display for InvalidStreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a stream: use {FLEET}, or {TENANT_PREFIX}NAME with the name of a user cluster",
            self.0
        )
    }
}

impl std::error::Error for InvalidStreamName {}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet => f.write_str(FLEET),
            Self::Tenant(cluster) => write!(f, "{TENANT_PREFIX}{cluster}"),
        }
    }
}

impl FromStr for StreamName {
    type Err = InvalidStreamName;
    fn from_str(text: &str) -> Result<Self, InvalidStreamName> {
        if text == FLEET {
            return Ok(Self::Fleet);
        }
        let cluster = text
            .strip_prefix(TENANT_PREFIX)
            .and_then(|name| name.parse().ok());
        cluster
            .map(Self::Tenant)
            .ok_or_else(|| InvalidStreamName(text.to_owned()))
    }
}

impl TryFrom<String> for StreamName {
    type Error = InvalidStreamName;
    fn try_from(text: String) -> Result<Self, InvalidStreamName> {
        text.parse()
    }
}

impl From<StreamName> for String {
    fn from(name: StreamName) -> Self {
        name.to_string()
    }
}

impl JsonSchema for StreamName {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StreamName".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(fleet|cluster/.+)$" })
    }
}
