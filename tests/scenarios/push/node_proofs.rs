//! Node proofs: agents without a certificate and without a join token, for which a kubelet vouches.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
};

use virtfleet_tests::{
    pki::Authority,
    sim::{
        Guest,
        enrol::{AgentSpec, EnrolFault},
    },
    stage::{STAGE_TIMEOUT, Stage},
    wait,
};

use super::kit::PushKit;

/// An address that belongs to no VM, e.g. of a relay.
const RELAY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 8));
/// The group of all kubelets.
pub(super) const NODES: &str = "system:nodes";

/// Two user clusters, each with an authority of its kubelets, of which the collector knows both.
pub(super) struct Clusters {
    pub(super) kit: PushKit,
    authorities: Vec<(String, Authority)>,
}

impl Clusters {
    fn new(guests: usize) -> Self {
        Self::with(guests, |_| {})
    }

    /// The same with a changed stage.
    pub(super) fn with(guests: usize, change: impl FnOnce(&mut Stage)) -> Self {
        let mut authorities = Vec::new();
        let kit = PushKit::with(guests, "", |stage| {
            change(stage);
            for entry in fs::read_dir(stage.manifests().join("clusters")).unwrap() {
                let folder = entry.unwrap().path();
                let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
                let authority = Authority::new(&format!("kubelets of {name}")).unwrap();
                let path = folder.join("cluster.yaml");
                let pem = authority.pem().replace('\n', "\n    ");
                let text = fs::read_to_string(&path).unwrap();
                fs::write(path, format!("{text}  nodeAuthorities: |\n    {pem}\n")).unwrap();
                authorities.push((name, authority));
            }
        });
        Self { kit, authorities }
    }

    pub(super) fn authority(&self, cluster: &str) -> &Authority {
        let found = self.authorities.iter().find(|(name, _)| name == cluster);
        &found.unwrap().1
    }

    /// An agent of this VM behind a relay, with a proof by this user of this cluster.
    fn spec(&self, guest: &Guest, cluster: &str, user: &str, group: &str) -> AgentSpec {
        let kubelet = self.authority(cluster).kubelet(user, group).unwrap();
        let spec = AgentSpec::honest(guest).unwrap();
        spec.pushing_from(self.kit.ingest, RELAY).with_kubelet(&kubelet)
    }

    /// An agent of this VM at its own address, with the proof of its kubelet.
    pub(super) fn proved(&self, guest: &Guest) -> AgentSpec {
        let kubelet = self.authority(&guest.cluster);
        let kubelet = kubelet.kubelet(&user(guest), NODES).unwrap();
        AgentSpec::honest(guest).unwrap().with_kubelet(&kubelet)
    }

    fn own(&self, guest: &Guest) -> AgentSpec {
        self.spec(guest, &guest.cluster, &user(guest), NODES)
    }

    /// Number of refused node proofs.
    fn refused(&self) -> u64 {
        let start = "virtfleet_collector_enrolments_total{result=\"node_proof\"} ";
        let page = self.kit.kit.stage.text("/metrics").unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap().parse().unwrap()
    }

    /// Runs an agent until its proof was refused.
    fn is_refused(&self, spec: AgentSpec) {
        let before = self.refused();
        let agent = self.kit.run(spec);
        let refused = wait::until(STAGE_TIMEOUT, "its proof is refused", || self.refused() > before);
        refused.unwrap_or_else(|error| panic!("{error:#}\n{}", self.kit.outcomes()));
        assert_eq!(
            (agent.requests(), agent.accepted()),
            (0, 0),
            "no CSR was asked for"
        );
        agent.stop().unwrap();
    }
}

pub(super) fn user(guest: &Guest) -> String {
    format!("system:node:{}", guest.name)
}

#[test]
fn a_vm_behind_a_relay_enrols_because_its_kubelet_vouches() {
    let clusters = Clusters::new(2);
    let guest = clusters.kit.kit.guest(0);
    let _agent = clusters.kit.run(clusters.own(&guest));
    let vm = clusters.kit.until_way(&guest, "push");
    assert_eq!(vm["enrolment"]["state"], "enrolled");
    assert_eq!(vm["findings"], 0, "{vm:#}");
    assert_eq!(clusters.refused(), 0);
}

#[test]
fn a_proof_by_anybody_else_enrols_nobody() {
    let clusters = Clusters::new(2);
    // Both VMs and their Nodes have the same name.
    let (guest, other) = (clusters.kit.kit.guest(0), clusters.kit.kit.guest(1));
    assert_ne!(guest.cluster, other.cluster);
    let cluster = &guest.cluster;
    for (issuer, user, group) in [
        // The kubelet of another Node, and users that are no kubelets.
        (cluster, "system:node:another".to_owned(), NODES),
        (cluster, user(&guest), "system:authenticated"),
        (cluster, "kubernetes-admin".to_owned(), "system:masters"),
        // Another tenant's authority signs what it likes.
        (&other.cluster, user(&guest), NODES),
    ] {
        clusters.is_refused(clusters.spec(&guest, issuer, &user, group));
    }
    // Its own proof, in a guest that is another VM.
    clusters.is_refused(clusters.own(&guest).with_fault(EnrolFault::OtherUuid));
    let _agent = clusters.kit.run(clusters.own(&guest));
    clusters.kit.until_way(&guest, "push");
}

#[test]
fn the_first_key_wins_with_a_node_proof_too() {
    let clusters = Clusters::new(1);
    let guest = clusters.kit.kit.guest(0);
    let first = clusters.kit.run(clusters.own(&guest));
    clusters.kit.until_way(&guest, "push");
    first.stop().unwrap();
    let second = clusters.kit.run(clusters.own(&guest));
    clusters.kit.kit.until_refused(&guest, "second_key");
    assert_eq!(second.accepted(), 0);
}
