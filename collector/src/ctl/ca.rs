//! `virtfleetctl ca rotate`.

use super::{
    cli::RootArg,
    client::{ApiResponse, Client},
    fail::Fail,
};
use crate::{api::RotateRequest, ca::RootKind};

/// Replaces a root; returns the new state.
pub(super) fn rotate(root: RootArg, drop_oldest: bool, client: &Client) -> Result<ApiResponse, Fail> {
    let root = match root {
        RootArg::Agents => RootKind::Agents,
        RootArg::Clients => RootKind::Clients,
    };
    if drop_oldest && root == RootKind::Agents {
        let why = "--drop-oldest applies to clients: agents have no cross-signed certificates";
        return Err(Fail::Usage(why.to_owned()));
    }
    let request = RotateRequest { root, drop_oldest };
    let body = serde_json::to_value(request).map_err(|error| Fail::Usage(error.to_string()))?;
    client.post("/api/v1/ca/rotate", &body)
}
