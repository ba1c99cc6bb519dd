//! Tier 3: the service range that no VM and no user cluster may lie in is that of the infra
//! cluster, not a guess.

use anyhow::ensure;
use virtfleet_tests::{
    cluster::{
        self,
        live::{Collector, WAIT_TIMEOUT, infra, settings},
    },
    parts, skip, wait,
};

/// The first Kubernetes that serves ServiceCIDRs as v1.
const SERVICE_CIDRS_SINCE: u32 = 33;

/// The test's API server has `--service-cluster-ip-range=10.96.0.0/16`; the default of
/// `scrape.serviceCIDRs` is 10.96.0.0/12, in which a Gardener seed's 10.100.0.0/16 lies.
#[test]
fn the_infra_clusters_own_service_range_is_refused_and_no_more_tier3() {
    let test = "the_infra_clusters_own_service_range_is_refused_and_no_more_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let infra = infra(root).unwrap();
    infra.namespace("vms").unwrap();
    let addresses = ["10.100.0.5", "10.96.3.4"];
    for (number, address) in addresses.iter().enumerate() {
        let vmi = cluster::vmi("vms", &format!("vm-{number}"))
            .phase("Running")
            .on("host-1");
        let vmi = vmi.interface("default", "02:00:00:00:00:01", &[address]);
        let vmi = infra.apply(&vmi).unwrap();
        infra.apply(&cluster::launcher(&vmi, &[address])).unwrap();
    }
    let kubeconfig = infra.kubeconfig(infra.admin_user());
    let has_kind = infra.minor().unwrap() >= SERVICE_CIDRS_SINCE;
    let dial = |collector: &Collector, vm: &str| {
        let detail = collector.json(&format!("/api/v1/vms/vms/{vm}"))?;
        Ok::<_, anyhow::Error>(
            detail["interfaces"][0]["dial"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    let until = |collector: &Collector, vm: &str, expected: &str| {
        wait::eventually(WAIT_TIMEOUT, expected, || {
            let said = dial(collector, vm)?;
            ensure!(said.contains(expected), "{vm}: {said}");
            Ok(())
        })
        .unwrap();
    };

    let collector = Collector::start(&root.join("own"), &settings(root, &kubeconfig, "").unwrap()).unwrap();
    collector.until_ready().unwrap();
    if has_kind {
        until(&collector, "vm-0", "not in scrape.allowCIDRs");
        until(
            &collector,
            "vm-1",
            "a service address by the infra cluster's ServiceCIDRs (10.96.0.0/16)",
        );
    } else {
        until(
            &collector,
            "vm-0",
            "a service address by the default of scrape.serviceCIDRs (10.96.0.0/12)",
        );
    }
}
