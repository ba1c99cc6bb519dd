//! `virtfleetctl ca rotate`.

use super::{
    cli::{RootArg, RotateArgs},
    client::{ApiResponse, Client},
    fail::Fail,
};
use crate::ca::{RootKind, Rotation};

/// Replaces a root; returns the new state.
pub(super) fn rotate(args: RotateArgs, client: &Client) -> Result<ApiResponse, Fail> {
    let root = match args.root {
        RootArg::Agents => RootKind::Agents,
        RootArg::Clients => RootKind::Clients,
    };
    if args.drop_oldest && root == RootKind::Agents {
        let why = "--drop-oldest applies to clients: agents have no cross-signed certificates";
        return Err(Fail::Usage(why.to_owned()));
    }
    let rotation = Rotation {
        root,
        distrust_previous: args.distrust_previous,
        drop_oldest: args.drop_oldest,
    };
    let body = serde_json::to_value(rotation).map_err(|error| Fail::Usage(error.to_string()))?;
    client.post("/api/v1/ca/rotate", &body)
}
