//! Requests to the collector of a cluster, through its API server.
//!
//! ```text
//! kubeconfig ─▶ attempts (which token, which way) ─┬─ service_proxy ─▶ API server ─▶ Service ─▶ collector
//!                                                  └─ port_forward ──▶ API server ─▶ kubelet ─▶ pod
//! ```
//! `docs/decisions/0030-access.md` says why there are two ways.

mod account;
mod attempts;
mod failure;
pub(super) mod kubeconfig;
mod names;
mod port_forward;
mod port_forward_tls;
mod service_proxy;
#[cfg(test)]
mod tests;
mod token;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kube::{Client, Config};
use tokio::runtime::Runtime;

use self::{
    account::OwnCredentials,
    attempts::{Attempt, AttemptWay},
    failure::{AttemptFailure, Attempted},
    names::COLLECTOR,
    port_forward::PortForward,
    service_proxy::ServiceProxy,
    token::{OwnToken, TokenSource},
};
use super::{
    cli::ConnectionArgs,
    fail::Fail,
    transport::{ApiCall, CollectorTransport, RawResponse},
};
use crate::{api::ErrorBody, doctor::CallerWay};

pub(in crate::ctl) struct ClusterTransport {
    runtime: Runtime,
    client: Client,
    own: Option<OwnToken>,
    attempts: Vec<Attempt>,
    audience: String,
    proxy: ServiceProxy,
    forward: PortForward,
    /// The attempt that worked, with its source of tokens.
    chosen: Mutex<Option<(AttemptWay, TokenSource)>>,
    server: String,
}

impl std::fmt::Debug for ClusterTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterTransport")
            .field("server", &self.server)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

/// The token of a kubeconfig, and the kind of its credentials.
async fn own_credentials(config: &Config) -> Result<(Option<OwnToken>, OwnCredentials), Fail> {
    let own = OwnToken::of(config)?;
    let token = match &own {
        Some(own) => own.read().await?,
        None => None,
    };
    Ok((own, OwnCredentials::of(token.as_deref())))
}

/// The ways on which requests to the collector pass the API server, in order; none if they go to a
/// URL. A program that the kubeconfig names is run.
///
/// # Errors
/// The kubeconfig or a flag cannot be used.
pub(in crate::ctl) fn caller_ways(
    connection: &ConnectionArgs,
    runtime: &Runtime,
) -> Result<Vec<CallerWay>, Fail> {
    if connection.is_direct() {
        return Ok(Vec::new());
    }
    let Some(config) = kubeconfig::find(connection)? else {
        return Ok(Vec::new());
    };
    let (_, credentials) = runtime.block_on(own_credentials(&config))?;
    let attempts = attempts::attempts(connection, &config.default_namespace, credentials)?;
    Ok(attempts.into_iter().map(CallerWay::from).collect())
}

impl ClusterTransport {
    /// The collector of the cluster in `config`. Sends no request.
    pub(in crate::ctl) fn new(config: Config, connection: &ConnectionArgs) -> Result<Self, Fail> {
        let start = |error: &dyn std::fmt::Display| Fail::Start(error.to_string());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| start(&error))?;
        let namespace = connection.collector_namespace.as_str();
        let url = config.cluster_url.to_string();
        let (client, own, credentials) = runtime.block_on(async {
            let (own, credentials) = own_credentials(&config).await?;
            let context_namespace = config.default_namespace.clone();
            let client = Client::try_from(config).map_err(|error| start(&error))?;
            Ok::<_, Fail>((client, own, (credentials, context_namespace)))
        })?;
        let (credentials, context_namespace) = credentials;
        let attempts = attempts::attempts(connection, &context_namespace, credentials)?;
        Ok(Self {
            proxy: ServiceProxy::new(client.clone(), namespace),
            forward: PortForward::new(client.clone(), namespace, connection.cacert.as_deref())?,
            server: format!("{}/{namespace}/{COLLECTOR}", url.trim_end_matches('/')),
            audience: connection.audience.clone(),
            runtime,
            client,
            own,
            attempts,
            chosen: Mutex::default(),
        })
    }

    async fn try_ways(&self, call: ApiCall<'_>, timeout: Duration, fresh: bool) -> Result<RawResponse, Fail> {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((way, source)) = chosen {
            return match self.attempt(way, &source, call, fresh).await {
                Ok(response) => Ok(response),
                // It has worked before, so the collector may be restarting.
                Err(Ok(failure)) => Err(self.unreachable(failure.0)),
                Err(Err(fail)) => Err(fail),
            };
        }
        let mut failures = Vec::new();
        for (index, attempt) in self.attempts.iter().enumerate() {
            let source = TokenSource::new(&attempt.token, &self.client, self.own.as_ref(), &self.audience)?;
            let response = self.attempt(attempt.way, &source, call, fresh);
            // An attempt that hangs leaves time for the next one.
            let is_last = index + 1 == self.attempts.len();
            let limit = if is_last { timeout } else { timeout / 2 };
            let response = tokio::time::timeout(limit, response).await;
            match response.unwrap_or_else(|_| Err(Ok(AttemptFailure("no answer in time".to_owned())))) {
                Ok(response) => {
                    let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
                    *chosen = Some((attempt.way, source));
                    return Ok(response);
                }
                Err(Ok(failure)) => failures.push(format!("{attempt}: {}", failure.0)),
                Err(Err(fail)) => return Err(fail),
            }
        }
        Err(attempts::none_worked(&failures))
    }

    fn unreachable(&self, why: String) -> Fail {
        Fail::Unreachable {
            server: self.server.clone(),
            why,
        }
    }

    async fn attempt(
        &self,
        way: AttemptWay,
        source: &TokenSource,
        call: ApiCall<'_>,
        fresh: bool,
    ) -> Attempted {
        let token = source.token().await?;
        let response = match way {
            AttemptWay::ServiceProxy => self.proxy.send(call, &token).await?,
            AttemptWay::PortForward => self.forward.send(call, &token, fresh).await?,
        };
        // Another token may be accepted. A caller without rights has none with another way either.
        if response.status == http::StatusCode::UNAUTHORIZED
            && let Ok(body) = serde_json::from_slice::<ErrorBody>(&response.body)
        {
            return Err(Ok(AttemptFailure(format!(
                "{}: {}",
                body.error.message, body.error.remedy
            ))));
        }
        Ok(response)
    }
}

impl CollectorTransport for ClusterTransport {
    fn server(&self) -> &str {
        &self.server
    }

    fn send(&self, call: ApiCall<'_>, timeout: Duration, fresh: bool) -> Result<RawResponse, Fail> {
        let limited = async { tokio::time::timeout(timeout, self.try_ways(call, timeout, fresh)).await };
        self.runtime.block_on(limited).unwrap_or_else(|_| {
            let limit = virtfleet_wire::duration::Span(timeout);
            Err(self.unreachable(format!("no answer within {limit} (--timeout)")))
        })
    }
}
