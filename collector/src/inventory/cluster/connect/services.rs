//! The service networks of the infra cluster, as its API server has them (`ServiceCIDR`, Kubernetes 1.33 and newer).

use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{Api, Client, api::ListParams};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use virtfleet_collector_core::facts::InventoryEvent;

use super::Gate;

/// Between two reads: a range is added once in years.
const AGAIN: Duration = Duration::from_mins(5);
/// Between two reads while the API server does not answer.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum time for one read.
const ANSWER: Duration = Duration::from_secs(5);

/// Passes the networks to the gate and to the fleet, whenever they change, for ever. Reads them once before it returns, so that
/// nothing is dialled by the default range of a cluster that has another one.
pub(in crate::inventory::cluster) async fn follow_services(
    infra: Client,
    gate: Gate,
    events: mpsc::Sender<InventoryEvent>,
) -> impl Future<Output = ()> {
    let api: Api<ServiceCIDR> = Api::all(infra);
    let mut pause = pass_on(&api, &gate, &events).await;
    async move {
        loop {
            sleep(pause).await;
            pause = pass_on(&api, &gate, &events).await;
        }
    }
}

/// Reads once; returns when to read again.
async fn pass_on(api: &Api<ServiceCIDR>, gate: &Gate, events: &mpsc::Sender<InventoryEvent>) -> Duration {
    const FALLBACK: &str = "the default of scrape.serviceCIDRs is used";
    match timeout(ANSWER, api.list(&ListParams::default())).await {
        Ok(Ok(list)) => {
            let networks = networks(&list.items);
            if !networks.is_empty() && gate.guard.set_service_networks(networks.clone()) {
                tracing::info!(?networks, "service networks of the infra cluster");
                events.send(InventoryEvent::ServiceNetworks(networks)).await.ok();
            }
            AGAIN
        }
        // No such kind before 1.33, or no right to list it.
        Ok(Err(kube::Error::Api(status))) => {
            tracing::debug!(code = status.code, "ServiceCIDRs cannot be listed: {FALLBACK}");
            AGAIN
        }
        Ok(Err(_)) | Err(_) => RETRY,
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
    fn every_range_of_every_object() {
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
