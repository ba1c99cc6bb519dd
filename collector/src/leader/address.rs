//! Publishes the leader's address in an EndpointSlice, so that a Service without selector leads to
//! the leader (Kubernetes documentation, "Services without selectors").

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use k8s_openapi::{
    api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Leadership, WriteAccess};

/// The environment variable with the address of this pod.
const ADDRESS_VARIABLE: &str = "POD_IP";
/// Field manager of the EndpointSlice.
const FIELD_MANAGER: &str = "virtfleet-collector";
/// Label that names the Service of an EndpointSlice.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// Label that says who maintains an EndpointSlice, so that Kubernetes' own controllers leave it.
const MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// Maximum time of a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time until the EndpointSlice is written again: somebody may have deleted or changed it.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Time until a failed write is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Why the leader's address cannot be published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaderAddressError {
    #[error(
        "leaderElection.service: the environment variable {ADDRESS_VARIABLE} is not set; set it to the pod's \
         status.podIP, as packaging/collector/kubernetes/infra/deployment.yaml does"
    )]
    NoVariable,
    /// The variable has another value than an address.
    #[error(
        "leaderElection.service: the environment variable {ADDRESS_VARIABLE} is {0:?}, not an IP address"
    )]
    NotAnAddress(String),
    #[error("leaderElection.service: {setting} is {address:?}, not an address with a port")]
    NoPort { setting: &'static str, address: String },
}

/// The EndpointSlice of the Service that leads to the leader.
pub struct LeaderAddress {
    api: Api<EndpointSlice>,
    slice: EndpointSlice,
    name: String,
}

/// A port of the Service: its name, and the setting with the address where the collector listens.
#[derive(Debug, Clone, Copy)]
pub struct LeaderPort<'a> {
    pub name: &'static str,
    pub setting: &'static str,
    /// Its value, `ADDRESS:PORT`.
    pub address: &'a str,
}

impl LeaderAddress {
    /// The EndpointSlice `service` in `namespace`, with the address in `POD_IP`.
    ///
    /// # Errors
    /// The variable has no address, or a setting has no port.
    pub fn from_environment(
        client: Client,
        namespace: &str,
        service: &str,
        ports: &[LeaderPort<'_>],
    ) -> Result<Self, LeaderAddressError> {
        let text = std::env::var(ADDRESS_VARIABLE).unwrap_or_default();
        let address = own_address(&text)?;
        Ok(Self {
            api: Api::namespaced(client, namespace),
            slice: slice(service, address, ports)?,
            name: format!("{namespace}/{service}"),
        })
    }

    async fn write(&self) -> Result<(), String> {
        let name = self.slice.metadata.name.as_deref().unwrap_or_default();
        // Another leader wrote the fields before.
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&self.slice);
        match tokio::time::timeout(WRITE_TIMEOUT, self.api.patch(name, &params, &patch)).await {
            Ok(written) => written.map(drop).map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {WRITE_TIMEOUT:?}")),
        }
    }

    /// Writes the EndpointSlice whenever this process becomes the leader, and at intervals while it
    /// leads, until `stop`.
    pub async fn publish(self, access: WriteAccess, stop: CancellationToken) {
        let mut leadership = access.changes();
        let mut next = None;
        let mut failing = false;
        loop {
            if !access.leads() {
                next = None;
            } else if next.is_none_or(|at| at <= Instant::now()) {
                let pause = match access.within(WRITE_TIMEOUT, self.write()).await {
                    Some(Ok(())) => {
                        if failing || next.is_none() {
                            tracing::info!(endpoint_slice = self.name, "the Service leads to this collector");
                        }
                        failing = false;
                        REFRESH_INTERVAL
                    }
                    Some(Err(error)) => {
                        if !failing {
                            tracing::warn!(
                                endpoint_slice = self.name,
                                error,
                                "the leader's address could not be written; agents and Prometheus may not find \
                                 this collector, and the write will be retried"
                            );
                        }
                        failing = true;
                        RETRY_INTERVAL
                    }
                    // The Lease ends too soon: it will be renewed, or is lost.
                    None => RETRY_INTERVAL,
                };
                next = Some(Instant::now() + pause);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = leader_changes(&mut leadership, next.is_some()) => {}
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }
}

/// Returns when this process begins or ceases to lead. A renewal of the Lease is no change.
async fn leader_changes(leadership: &mut watch::Receiver<Leadership>, led: bool) {
    while leadership.changed().await.is_ok() {
        if (*leadership.borrow_and_update() != Leadership::Standby) != led {
            return;
        }
    }
    std::future::pending::<()>().await;
}

fn own_address(text: &str) -> Result<IpAddr, LeaderAddressError> {
    if text.is_empty() {
        return Err(LeaderAddressError::NoVariable);
    }
    text.parse()
        .map_err(|_| LeaderAddressError::NotAnAddress(text.to_owned()))
}

fn slice(
    service: &str,
    address: IpAddr,
    ports: &[LeaderPort<'_>],
) -> Result<EndpointSlice, LeaderAddressError> {
    let ports = ports.iter().map(|port| {
        let listens: SocketAddr = port.address.parse().map_err(|_| LeaderAddressError::NoPort {
            setting: port.setting,
            address: port.address.to_owned(),
        })?;
        Ok(EndpointPort {
            name: Some(port.name.to_owned()),
            port: Some(i32::from(listens.port())),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        })
    });
    let labels = [(SERVICE_LABEL, service), (MANAGER_LABEL, FIELD_MANAGER)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Ok(EndpointSlice {
        address_type: if address.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned(),
        metadata: ObjectMeta {
            name: Some(service.to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        endpoints: vec![Endpoint {
            addresses: vec![address.to_string()],
            conditions: Some(EndpointConditions {
                ready: Some(true),
                ..EndpointConditions::default()
            }),
            ..Endpoint::default()
        }],
        ports: Some(ports.collect::<Result<_, LeaderAddressError>>()?),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const API: LeaderPort<'_> = LeaderPort {
        name: "api",
        setting: "server.address",
        address: "[::]:10912",
    };

    #[test]
    fn the_slice_belongs_to_the_service_and_has_the_pods_address() {
        let slice = slice("to-leader", own_address("fd00::7").unwrap(), &[API]).unwrap();
        assert_eq!(
            serde_json::to_value(slice).unwrap(),
            json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "to-leader",
                    "labels": {
                        "kubernetes.io/service-name": "to-leader",
                        "endpointslice.kubernetes.io/managed-by": "virtfleet-collector",
                    },
                },
                "addressType": "IPv6",
                "endpoints": [{ "addresses": ["fd00::7"], "conditions": { "ready": true } }],
                "ports": [{ "name": "api", "port": 10912, "protocol": "TCP" }],
            })
        );
        assert_eq!(
            super::slice("to-leader", [10, 0, 0, 7].into(), &[])
                .unwrap()
                .address_type,
            "IPv4"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, expected) in [
            ("", "POD_IP is not set; set it to the pod's status.podIP"),
            ("web-0", "POD_IP is \"web-0\", not an IP address"),
        ] {
            let error = own_address(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let port = LeaderPort {
            address: "localhost",
            ..API
        };
        let error = slice("to-leader", [10, 0, 0, 7].into(), &[port]).unwrap_err();
        assert!(
            error.to_string().contains("server.address is \"localhost\""),
            "{error}"
        );
    }
}
