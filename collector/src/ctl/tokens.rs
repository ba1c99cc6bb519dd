//! `virtfleetctl token create` and `revoke`.

use serde::Serialize;

use super::{
    cli::TokenCreateArgs,
    client::{ApiResponse, Client},
    fail::Fail,
};
use crate::{api::TokenRevocation, tokens::TokenCreation};

/// Creates a token; the response has its text.
pub(super) fn create(args: &TokenCreateArgs, client: &Client) -> Result<ApiResponse, Fail> {
    let cluster = args.cluster.parse();
    let creation = TokenCreation {
        cluster: cluster.map_err(|error| Fail::Usage(format!("{error}")))?,
        ttl: args.ttl,
        networks: args.from.clone(),
    };
    post("/api/v1/tokens", &creation, client)
}

/// Ends the token whose path is `path`.
pub(super) fn revoke(path: &str, client: &Client) -> Result<ApiResponse, Fail> {
    post(path, &TokenRevocation {}, client)
}

fn post(path: &str, body: &impl Serialize, client: &Client) -> Result<ApiResponse, Fail> {
    let body = serde_json::to_value(body);
    client.post(path, &body.map_err(|error| Fail::Usage(error.to_string()))?)
}
