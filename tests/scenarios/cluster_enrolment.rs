//! Tier 3: enrolment with a real API server: the authority in a Secret, the records in ConfigMaps,
//! and two collectors, of which one leads.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{fs, net::SocketAddr};

use anyhow::ensure;
use nix::sys::signal::Signal;
use serde_json::Value;
use virtfleet_tests::{
    cluster::{
        self, ApiServer,
        live::{Collector, POD_ADDRESS, WAIT_TIMEOUT, infra, settings, user_cluster},
    },
    parts, pki, ports,
    sim::{
        Guest, Options, Plan,
        enrol::{AgentHost, AgentSpec, RunningAgent},
    },
    skip, wait,
};

const TIER: u8 = 3;

/// The VMI of a guest with its virt-launcher pod; returns the guest with the UID from the server.
fn run_vm(infra: &ApiServer, guest: &Guest) -> Guest {
    let address = guest.address.ip().to_string();
    let vmi = cluster::vmi("vms", &guest.name)
        .phase("Running")
        .on("host-1")
        .with(
            "/spec/domain/firmware",
            serde_json::json!({ "uuid": guest.firmware }),
        )
        .interface("default", &guest.mac, &[&address]);
    let vmi = infra.apply(&vmi).unwrap();
    infra.apply(&cluster::launcher(&vmi, &[&address])).unwrap();
    Guest {
        cluster: "vms".to_owned(),
        uid: vmi["metadata"]["uid"].as_str().unwrap().to_owned(),
        ..guest.clone()
    }
}

/// An API server with VMs that no agent has enrolled yet.
struct EnrolmentStage {
    infra: ApiServer,
    guests: Vec<Guest>,
    /// The port of every agent.
    port: u16,
    /// The collector's settings of the inventory.
    inventory: String,
    folder: tempfile::TempDir,
}

impl EnrolmentStage {
    /// None: the machine has no API server, and the test is skipped.
    fn new(test: &str, guests: usize) -> Option<Self> {
        skip::need(TIER, test, parts::kube_assets()).unwrap()?;
        let folder = tempfile::tempdir().unwrap();
        let infra = infra(folder.path()).unwrap();
        for name in ["vms", "virtfleet"] {
            infra.namespace(name).unwrap();
        }
        let port = ports::free().unwrap().port();
        let options = Options {
            guests,
            clusters: 1,
            port,
            ..Options::default()
        };
        let plan = Plan::new(&options).unwrap();
        Some(Self {
            guests: plan.guests.iter().map(|guest| run_vm(&infra, guest)).collect(),
            inventory: settings(folder.path(), &infra.kubeconfig(infra.admin_user()), "").unwrap(),
            infra,
            port,
            folder,
        })
    }

    /// Starts a collector with further settings.
    fn collector(&self, name: &str, settings: &str) -> Collector {
        let scrape = format!("  interval: 1s\n  timeout: 1s\n  port: {}\n", self.port);
        let more = format!(
            "enrolment: {{ trustDomain: {}, lifetime: 24h }}\n\
             leaderElection: {{ namespace: virtfleet, service: to-leader, leaseSeconds: 6, renewSeconds: 4, retrySeconds: 1 }}\n\
             {settings}",
            pki::TRUST_DOMAIN
        );
        let folder = self.folder.path().join(name);
        let collector = Collector::start_scraping(&folder, &self.inventory, &scrape, &more).unwrap();
        collector.until_ready().unwrap();
        collector
    }

    /// Agents that the collectors of this cluster can enrol.
    fn agent_host(&self, collector: &Collector) -> AgentHost {
        let roots = self.folder.path().join("clients.pem");
        fs::write(&roots, collector.text("/api/v1/ca/clients.pem").unwrap()).unwrap();
        AgentHost::new(&roots).unwrap()
    }
}

fn until_agent(collector: &Collector, guest: &Guest, what: &str, holds: impl Fn(&Value) -> bool) {
    wait::eventually(WAIT_TIMEOUT, &format!("{}: {what}", guest.name), || {
        let vm = collector.json(&format!("/api/v1/vms/vms/{}", guest.name))?;
        ensure!(holds(&vm["agent"]), "{vm:#}");
        Ok(())
    })
    .unwrap();
}

fn until_up(collector: &Collector, guest: &Guest) {
    until_agent(collector, guest, "up", |agent| agent["status"] == "up");
}

fn until_refused(collector: &Collector, guest: &Guest, reason: &str) {
    until_agent(collector, guest, reason, |agent| {
        agent["failure"]["enrolment"] == reason
    });
}

/// Waits until a collector, which need not lead, has pulled an agent.
fn until_pulls(collector: &Collector) {
    wait::eventually(WAIT_TIMEOUT, "it pulls", || {
        let pulls = collector.sample("virtfleet_collector_pulls_total{result=\"ok\"}")?;
        ensure!(pulls > 0.5, "none");
        Ok(())
    })
    .unwrap();
}

/// The VMs with a record, from the ConfigMaps.
fn recorded(infra: &ApiServer) -> Vec<String> {
    let path = "/api/v1/namespaces/virtfleet/configmaps?labelSelector=virtfleet.io/component=enrolments";
    let list = infra.admin().get(path).unwrap().ok().unwrap();
    let mut all = Vec::new();
    for map in list["items"].as_array().unwrap() {
        let json = map["data"]["enrolments.json"].as_str().unwrap();
        let shard: Value = serde_json::from_str(json).unwrap();
        all.extend(shard["records"].as_object().unwrap().keys().cloned());
    }
    all.sort();
    all
}

#[test]
fn tier3_the_leader_enrols_and_another_takes_over_with_its_records() {
    let test = "tier3_the_leader_enrols_and_another_takes_over_with_its_records";
    let Some(stage) = EnrolmentStage::new(test, 3) else {
        return;
    };
    let (infra, [first, second, third]) = (&stage.infra, &stage.guests[..]) else {
        unreachable!("three guests");
    };
    let leader = stage.collector("leader", "");
    leader.until_leads().unwrap();
    let standby = stage.collector("standby", "");
    let host = stage.agent_host(&leader);
    let run = |guest: &Guest| -> RunningAgent { host.run(AgentSpec::honest(guest).unwrap()).unwrap() };

    let agents = [run(first), run(second)];
    for guest in [first, second] {
        until_up(&leader, guest);
    }
    until_pulls(&standby);
    assert!(agents.iter().all(|agent| agent.accepted() == 1));
    assert_eq!(
        recorded(infra),
        [format!("vms/{}", first.name), format!("vms/{}", second.name)]
    );
    let issued = "virtfleet_collector_enrolments_total{result=\"issued\"}";
    assert!(standby.sample(issued).unwrap() < 0.5);
    // The standby refers to the leader, and changes nothing.
    let name = format!("vms/{}", second.name);
    standby.ctl(&["enrolment", "revoke", &name]).unwrap_err();

    leader.process.signal(Signal::SIGKILL).unwrap();
    standby.until_leads().unwrap();
    // It knows the keys of the one before.
    let [honest, _] = agents;
    honest.stop().unwrap();
    let impostor = run(first);
    until_refused(&standby, first, "second_key");
    assert_eq!(impostor.accepted(), 0);
    run(third);
    until_up(&standby, third);
    assert_eq!(recorded(infra).len(), 3);

    standby.ctl(&["enrolment", "revoke", &name]).unwrap();
    until_refused(&standby, second, "revoked");
    let other = stage.collector("other", "");
    // One that runs already learns of it, too.
    until_pulls(&other);
    standby
        .ctl(&["enrolment", "revoke", &format!("vms/{}", third.name)])
        .unwrap();
    standby.process.signal(Signal::SIGKILL).unwrap();
    other.until_leads().unwrap();
    until_refused(&other, second, "revoked");
    let refused = |agent: &Value| {
        ["revoked", "certificate_denied"]
            .iter()
            .any(|reason| agent["failure"]["enrolment"] == *reason)
    };
    until_agent(&other, third, "refused by the standby", refused);
}

#[test]
fn tier3_records_changed_by_another_writer_are_read_again() {
    let test = "tier3_records_changed_by_another_writer_are_read_again";
    let Some(stage) = EnrolmentStage::new(test, 1) else {
        return;
    };
    let (infra, guest) = (&stage.infra, &stage.guests[0]);
    let collector = stage.collector("collector", "");
    collector.until_leads().unwrap();
    let host = stage.agent_host(&collector);
    let agent = host.run(AgentSpec::honest(guest).unwrap()).unwrap();
    until_up(&collector, guest);
    // An admin deletes the ConfigMap while the collector runs: the record is read again before the
    // second key is refused, and it is gone, as the admin wanted.
    let path = "/api/v1/namespaces/virtfleet/configmaps?labelSelector=virtfleet.io/component=enrolments";
    let list = infra.admin().get(path).unwrap().ok().unwrap();
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    let path = format!("/api/v1/namespaces/virtfleet/configmaps/{name}");
    infra.admin().delete(&path).unwrap().ok().unwrap();
    agent.stop().unwrap();
    let other = host.run(AgentSpec::honest(guest).unwrap()).unwrap();
    wait::until(WAIT_TIMEOUT, "another key is accepted", || other.accepted() == 1).unwrap();
    until_up(&collector, guest);
    assert_eq!(recorded(infra), [format!("vms/{}", guest.name)]);
}

/// Waits until the Service of the leader leads to `collector`, where agents connect to `ingest`.
fn until_leads_to(infra: &ApiServer, collector: &Collector, ingest: SocketAddr) {
    let slice = "/apis/discovery.k8s.io/v1/namespaces/virtfleet/endpointslices/to-leader";
    let expected = serde_json::json!([
        { "name": "api", "port": collector.api.port(), "protocol": "TCP" },
        { "name": "ingest", "port": ingest.port(), "protocol": "TCP" },
    ]);
    wait::eventually(WAIT_TIMEOUT, "the Service leads to the leader", || {
        let now = infra.admin().get(slice)?.ok()?;
        ensure!(now["ports"] == expected, "{now:#}");
        assert_eq!(now["endpoints"][0]["addresses"][0], POD_ADDRESS);
        Ok(())
    })
    .unwrap();
}

/// Push with two collectors: agents connect to the leader, to which a Service leads and a standby
/// refers, and tokens are in a Secret.
#[test]
fn tier3_the_leader_accepts_agents_and_join_tokens_outlive_it() {
    let test = "tier3_the_leader_accepts_agents_and_join_tokens_outlive_it";
    let Some(stage) = EnrolmentStage::new(test, 2) else {
        return;
    };
    let (infra, [first, second]) = (&stage.infra, &stage.guests[..]) else {
        unreachable!("two guests");
    };
    infra.apply(&user_cluster("blue", "vms")).unwrap();
    let start = |name: &str| {
        let ingest = ports::free().unwrap();
        let settings = format!("ingest: {{ address: '{ingest}' }}\n");
        (stage.collector(name, &settings), ingest)
    };
    let (leader, to_leader) = start("leader");
    leader.until_leads().unwrap();
    let (standby, to_standby) = start("standby");
    until_leads_to(infra, &leader, to_leader);
    let host = stage.agent_host(&leader);
    let by_push = |agent: &Value| agent["status"] == "up" && agent["way"]["kind"] == "push";

    // By its address, at the leader only.
    let agent = host
        .run(AgentSpec::honest(first).unwrap().pushing(to_leader))
        .unwrap();
    until_agent(&leader, first, "up by push", by_push);
    for path in ["/api/v1/vms", "/metrics/fleet", "/sd"] {
        let error = standby.text(path).unwrap_err().to_string();
        assert!(error.contains("not_leading"), "{path}: {error}");
    }
    let log = standby.process.log();
    assert!(!log.contains("agent silent"), "a standby cannot know: {log}");
    agent.stop().unwrap();
    let refused = "virtfleet_collector_ingest_connections_total{result=\"not_leader\"}";
    let elsewhere = host
        .run(AgentSpec::honest(first).unwrap().pushing(to_standby))
        .unwrap();
    wait::until(WAIT_TIMEOUT, "the standby refuses", || {
        standby.sample(refused).is_ok_and(|count| count > 0.5)
    })
    .unwrap();
    assert_eq!(elsewhere.requests(), 0, "nothing was sent to it");
    elsewhere.stop().unwrap();

    let create = ["token", "create", "blue", "--from", "127.0.7.0/24"];
    standby.ctl(&create).unwrap_err();
    let token = leader.ctl(&create).unwrap();
    let secret = infra
        .admin()
        .get("/api/v1/namespaces/virtfleet/secrets/virtfleet-join-tokens");
    let stored = secret.unwrap().ok().unwrap()["data"]["join-tokens.json"].to_string();
    let hidden = token.trim().rsplit_once('.').unwrap().1;
    assert!(stored.len() > 100 && !stored.contains(hidden), "{stored}");

    leader.process.signal(Signal::SIGKILL).unwrap();
    standby.until_leads().unwrap();
    until_leads_to(infra, &standby, to_standby);
    let nat = "127.0.7.7".parse().unwrap();
    let spec = AgentSpec::honest(second).unwrap();
    let spec = spec.pushing_from(to_standby, nat).with_token(token.trim());
    let agent = host.run(spec).unwrap();
    until_agent(&standby, second, "up by push", by_push);
    assert_eq!(agent.accepted(), 1);
    let id = token.split('.').nth(1).unwrap();
    standby.ctl(&["token", "revoke", id]).unwrap();
    assert_eq!(standby.ctl(&["token", "list"]).unwrap(), "no join tokens\n");
}
