//! Service networks of the infra cluster, read from its API server (`ServiceCIDR`, Kubernetes 1.33
//! and newer).

use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{Api, Client, api::ListParams};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use virtfleet_collector_core::facts::InventoryEvent;

use super::ConnectionPolicy;

/// Interval between two reads: ranges are added rarely.
const READ_INTERVAL: Duration = Duration::from_mins(5);
/// Interval between two reads while the API server does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Passes the networks to the policy and the fleet at every change. Reads them once before it
/// returns, so that nothing is dialled by the default range in a cluster with another one.
pub(in crate::inventory::cluster) async fn follow_services(
    infra: Client,
    policy: ConnectionPolicy,
    events: mpsc::Sender<InventoryEvent>,
) -> impl Future<Output = ()> {
    let api: Api<ServiceCIDR> = Api::all(infra);
    let mut pause = pass_on(&api, &policy, &events).await;
    async move {
        loop {
            sleep(pause).await;
            pause = pass_on(&api, &policy, &events).await;
        }
    }
}

/// Reads once; returns the delay until the next read.
async fn pass_on(
    api: &Api<ServiceCIDR>,
    policy: &ConnectionPolicy,
    events: &mpsc::Sender<InventoryEvent>,
) -> Duration {
    const FALLBACK: &str = "the default of scrape.serviceCIDRs is used";
    match timeout(REQUEST_TIMEOUT, api.list(&ListParams::default())).await {
        Ok(Ok(list)) => {
            let networks = networks(&list.items);
            if !networks.is_empty() && policy.guard.set_service_networks(networks.clone()) {
                tracing::info!(?networks, "service networks of the infra cluster");
                events.send(InventoryEvent::ServiceNetworks(networks)).await.ok();
            }
            READ_INTERVAL
        }
        // The kind does not exist before 1.33, or the right to list it is missing.
        Ok(Err(kube::Error::Api(status))) => {
            tracing::debug!(code = status.code, "ServiceCIDRs cannot be listed: {FALLBACK}");
            READ_INTERVAL
        }
        Ok(Err(_)) | Err(_) => RETRY_INTERVAL,
    }
}

fn networks(all: &[ServiceCIDR]) -> Vec<IpNet> {
    let texts = all.iter().filter_map(|one| one.spec.as_ref()?.cidrs.as_ref());
    let mut networks: Vec<IpNet> = texts.flatten().filter_map(|text| text.parse().ok()).collect();
    networks.sort_unstable();
    networks.dedup();
    networks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_ranges_of_all_objects_are_read() {
        let of = |cidrs: &[&str]| serde_json::from_value(json!({ "spec": { "cidrs": cidrs } })).unwrap();
        let all = [
            of(&["10.96.0.0/16", "fd00:1::/112"]),
            of(&["10.97.0.0/16", "x"]),
            ServiceCIDR::default(),
        ];
        let found: Vec<_> = networks(&all).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.96.0.0/16", "10.97.0.0/16", "fd00:1::/112"]);
    }
}
