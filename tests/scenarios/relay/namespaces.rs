//! Network namespaces stand for the pods: one for the collector, one for the relay, which has an
//! interface in both networks, and one for the VM. The collector has no route to the VM, as with a
//! tenant network, or as if policies deny it.

use std::{fs, net::SocketAddr, path::Path};

use serde_json::Value;
use virtfleet_tests::{
    bins,
    dns::{NetNs, veth},
    pki::{self, Authority},
    process::{Launch, Process},
    scrape::Client,
    sim::{self, Guest, Options, Plan},
    skip,
    stage::STAGE_TIMEOUT,
    wait,
};

const API: &str = "127.0.0.1:10912";

/// Starts the real agent of `guest` in its namespace.
fn start_agent(folder: &Path, network: &NetNs, authority: &Authority, guest: &Guest) -> Process {
    let identity = authority.agent(&guest.cluster, &guest.name, &guest.uid).unwrap();
    let files = pki::write(folder, "agent", authority, &identity).unwrap();
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  - name: default\n    \
         address: \"{}\"\n  tls: {{ certificate: {}, key: {}, clientCA: {} }}\n",
        guest.address,
        files.certificate.display(),
        files.key.display(),
        files.ca.display()
    );
    let config = folder.join("agent.yaml");
    fs::write(&config, text).unwrap();
    let agent = Launch::new(bins::agent().unwrap())
        .in_namespace(network.name())
        .arg("run")
        .arg("--config")
        .arg(config);
    agent.start(folder).unwrap()
}

fn start_collector(folder: &Path, network: &NetNs, authority: &Authority, port: u16) -> Process {
    let files = pki::write(
        &folder.join("pki"),
        "collector",
        authority,
        &authority.collector().unwrap(),
    );
    let files = files.unwrap();
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {{ folder: {} }}\n\
         server: {{ address: \"{API}\" }}\nscrape:\n  interval: 1s\n  timeout: 1s\n  port: {port}\n  \
         tls: {{ ca: {}, certificate: {}, key: {}, trustDomain: {} }}\n",
        folder.join("fleet").display(),
        files.ca.display(),
        files.certificate.display(),
        files.key.display(),
        pki::TRUST_DOMAIN,
    );
    let config = folder.join("collector.yaml");
    fs::write(&config, text).unwrap();
    let collector = Launch::new(bins::collector().unwrap())
        .in_namespace(network.name())
        .arg("serve")
        .arg("--config")
        .arg(config);
    collector.start(folder).unwrap()
}

/// Waits until the agent of `guest` satisfies `holds`.
fn until(network: &NetNs, guest: &Guest, what: &str, holds: impl Fn(&Value) -> bool + Sync) -> Value {
    let path = format!("/api/v1/vms/{}/{}", guest.cluster, guest.name);
    let address: SocketAddr = API.parse().unwrap();
    let probe = || -> anyhow::Result<Value> {
        let vm = Client::plain(address, STAGE_TIMEOUT)?.get(&path)?.ok()?.json()?;
        anyhow::ensure!(holds(&vm["agent"]), "not yet: {vm:#}");
        Ok(vm["agent"].clone())
    };
    wait::eventually(STAGE_TIMEOUT, what, || network.run(probe)?).unwrap()
}

#[test]
fn tier2_a_vm_without_a_route_from_the_collector_is_reached_through_the_relay() {
    let test = "tier2_a_vm_without_a_route_from_the_collector_is_reached_through_the_relay";
    if skip::need(2, test, skip::root()).unwrap().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [infra, middle, tenant] = [(); 3].map(|()| NetNs::new().unwrap());
    veth(
        (&infra, "relay", &["10.66.1.1/24"]),
        (&middle, "infra", &["10.66.1.2/24"]),
    )
    .unwrap();
    veth(
        (&middle, "tenant", &["10.66.2.1/24"]),
        (&tenant, "eth0", &["10.66.2.2/24"]),
    )
    .unwrap();
    let mut plan = Plan::new(&Options {
        guests: 1,
        hosts: 1,
        zones: 1,
        clusters: 1,
        ..Options::default()
    })
    .unwrap();
    let port = plan.guests[0].address.port();
    plan.guests[0].address = SocketAddr::new("10.66.2.2".parse().unwrap(), port);
    let guest = plan.guests[0].clone();
    sim::write_folder(&folder.join("fleet"), &plan).unwrap();
    let authority = Authority::new("virtfleet test authority").unwrap();
    let _agent = start_agent(&folder.join("agent"), &tenant, &authority, &guest);
    let mut relay = Launch::new(bins::collector().unwrap())
        .in_namespace(middle.name())
        .args(["relay", "--connect.allow-cidrs=10.66.2.0/24"])
        .arg(format!("--connect.port={port}"))
        .start(&folder.join("agent"))
        .unwrap();
    relay.wait_for_line("relaying", STAGE_TIMEOUT).unwrap();
    let _collector = start_collector(folder, &infra, &authority, port);
    let silent = until(&infra, &guest, "it cannot be dialled directly", |agent| {
        agent["failure"]["class"] == "connect"
    });
    assert_eq!(silent["way"]["kind"], "direct");

    super::set_relay(&folder.join("fleet"), &guest.cluster, "10.66.1.2:10915").unwrap();
    let up = until(&infra, &guest, "it answers", |agent| agent["status"] == "up");
    assert_eq!(up["way"]["kind"], "relay");
    assert!(!up["verifiedMs"].is_null(), "{up:#}");
}
