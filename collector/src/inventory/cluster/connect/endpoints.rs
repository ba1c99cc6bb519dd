//! Further addresses of the infra API server: the endpoints of the Service `kubernetes`. No tenant
//! may let the collector dial them.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::ConnectionPolicy;

/// Interval between two reads: a replaced API server has another address.
const READ_INTERVAL: Duration = Duration::from_mins(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Keeps the policy's list of these addresses up to date. Without the right to read them, only the
/// address in the infra API server's URL is forbidden.
pub(in crate::inventory::cluster) async fn follow_endpoints(infra: Client, policy: ConnectionPolicy) {
    let api: Api<EndpointSlice> = Api::namespaced(infra, "default");
    loop {
        match timeout(REQUEST_TIMEOUT, api.get("kubernetes")).await {
            Ok(Ok(slice)) => policy.infra.set_endpoints(addresses(&slice)),
            Ok(Err(error)) => tracing::debug!(
                %error,
                "the EndpointSlice default/kubernetes cannot be read: a user cluster's kubeconfig may name an address of the \
                 infra API server"
            ),
            Err(_) => {}
        }
        sleep(READ_INTERVAL).await;
    }
}

fn addresses(slice: &EndpointSlice) -> Vec<SocketAddr> {
    let ports = slice.ports.iter().flatten();
    let ports = ports.filter_map(|port| u16::try_from(port.port?).ok());
    let ports: Vec<u16> = ports.collect();
    let texts = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    let ips = texts.filter_map(|text| text.parse::<IpAddr>().ok());
    ips.flat_map(|ip| ports.iter().map(move |port| SocketAddr::new(ip, *port)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_address_with_every_port() {
        let slice = json!({
            "addressType": "IPv4", "ports": [{ "port": 6443 }, {}],
            "endpoints": [{ "addresses": ["203.0.113.1"] }, { "addresses": ["203.0.113.2", "x"] }],
        });
        let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
        let found: Vec<_> = addresses(&slice).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["203.0.113.1:6443", "203.0.113.2:6443"]);
    }
}
