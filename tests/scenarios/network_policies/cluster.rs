//! An infra cluster with the collector, two tenants and pods of others.

use std::net::{IpAddr, Ipv4Addr};

use virtfleet_tests::policy::{Manifest, NetworkPolicy, Place, Pod, PodNamespace, ipv6_of};

/// How the platform divides its namespaces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tenants {
    /// A namespace for each user cluster.
    Apart,
    /// One namespace for all of them, as in KKP's namespaced mode.
    Together,
}

impl Tenants {
    fn namespace(self, cluster: &str) -> String {
        match self {
            Self::Apart => format!("cluster-{cluster}"),
            Self::Together => "shared".to_owned(),
        }
    }

    /// A shipped manifest for the first tenant, edited as its comments say.
    pub(super) fn manifest(self, name: &str) -> Manifest {
        let manifest = Manifest::shipped(name).unwrap();
        // Those of the collector are the same for all tenants.
        if self == Self::Apart || name.starts_with("infra/") {
            return manifest;
        }
        let vms = "{ kubevirt.io: virt-launcher";
        let own = format!("{vms}, cluster.x-k8s.io/cluster-name: abcdefghij");
        let manifest = manifest.replace("cluster-abcdefghij", "shared").unwrap();
        manifest.replace(vms, &own).unwrap()
    }

    /// The policies of shipped manifests for the first tenant.
    pub(super) fn policies(self, names: &[&str]) -> Vec<NetworkPolicy> {
        let policies = names.iter().map(|name| self.manifest(name).policies().unwrap());
        policies.flatten().collect()
    }

    /// The hosts of the scene.
    pub(super) fn places(self) -> Vec<Place> {
        let namespace = |name: &str| PodNamespace::new(name, &[]);
        let infra = namespace("virtfleet");
        let own = namespace(&self.namespace("abcdefghij"));
        let other = namespace(&self.namespace("klmnopqrst"));
        let admins = PodNamespace::new("ops", &[("virtfleet.io/admin", "true")]);
        let foreign = namespace("foreign");
        let app = "app.kubernetes.io/name";
        let host = |name, address, ports: &[u16]| place(name, address, None, ports);
        let pod = |name, namespace: &PodNamespace, labels: &[(&str, &str)], address, ports: &[u16]| {
            let pod = Pod::new(namespace, labels, parsed(address));
            place(name, address, Some(pod), ports)
        };
        let vm = |name, namespace, cluster, address| {
            let labels = [
                ("kubevirt.io", "virt-launcher"),
                ("cluster.x-k8s.io/cluster-name", cluster),
            ];
            pod(name, namespace, &labels, address, &[10911, 22])
        };
        let (collector, relay) = ("10.244.1.2", "10.244.2.5");
        let deployment = Manifest::shipped("infra/deployment.yaml").unwrap();
        let collector_pod = deployment.pod(&infra, parsed(collector)).unwrap();
        let relay_pod = self.manifest("relay.yaml").pod(&own, parsed(relay)).unwrap();
        vec![
            place(
                "collector",
                collector,
                Some(collector_pod),
                &[10912, 10913, 10914],
            ),
            place("relay", relay, Some(relay_pod), &[10913, 10914, 10915]),
            vm("vm-a", &own, "abcdefghij", "10.244.2.11"),
            vm("vm-b", &own, "abcdefghij", "10.244.2.12"),
            vm("other-vm", &other, "klmnopqrst", "10.244.3.11"),
            pod(
                "dns",
                &namespace("kube-system"),
                &[("k8s-app", "kube-dns")],
                "10.244.4.53",
                &[53, 8080],
            ),
            pod(
                "prometheus",
                &namespace("monitoring"),
                &[(app, "prometheus")],
                "10.244.5.2",
                &[],
            ),
            pod(
                "admin",
                &admins,
                &[("virtfleet.io/admin", "true")],
                "10.244.6.2",
                &[],
            ),
            // The right namespace without the right labels.
            pod(
                "collector-neighbour",
                &infra,
                &[(app, "other")],
                "10.244.1.3",
                &[10913],
            ),
            pod(
                "relay-neighbour",
                &own,
                &[(app, "other")],
                "10.244.2.6",
                &[10911, 10913],
            ),
            pod(
                "dns-neighbour",
                &namespace("kube-system"),
                &[(app, "other")],
                "10.244.4.54",
                &[53],
            ),
            pod(
                "prometheus-neighbour",
                &namespace("monitoring"),
                &[(app, "other")],
                "10.244.5.3",
                &[],
            ),
            pod("admin-neighbour", &admins, &[(app, "other")], "10.244.6.3", &[]),
            // The right labels without the right namespace.
            pod(
                "impostor",
                &foreign,
                &[
                    (app, "virtfleet-collector"),
                    ("virtfleet.io/admin", "true"),
                    ("k8s-app", "kube-dns"),
                ],
                "10.244.7.2",
                &[10913, 53],
            ),
            pod("foreign", &foreign, &[(app, "prometheus")], "10.244.7.3", &[]),
            // API servers of the infra cluster and of the user cluster, and a public address.
            host("api-server", "192.0.2.5", &[6443]),
            host("user-api-server", "10.250.0.6", &[6443]),
            host("internet", "198.51.100.10", &[443]),
        ]
    }
}

/// What KKP applies by default in the namespaces of both tenants.
pub(super) fn kkp_default() -> Vec<NetworkPolicy> {
    let own = Manifest::of_others("kkp-default.yaml").unwrap();
    let other = own.clone().replace("abcdefghij", "klmnopqrst").unwrap();
    [own, other]
        .iter()
        .flat_map(|one| one.policies().unwrap())
        .collect()
}

/// What KKP's namespaced deny mode applies for both tenants.
pub(super) fn kkp_deny() -> Vec<NetworkPolicy> {
    let own = Manifest::of_others("kkp-deny.yaml").unwrap();
    let other = own.clone().replace("abcdefghij", "klmnopqrst").unwrap();
    [own, other]
        .iter()
        .flat_map(|one| one.policies().unwrap())
        .collect()
}

fn parsed(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn place(name: &'static str, address: &str, pod: Option<Pod>, ports: &[u16]) -> Place {
    let address = address.parse::<Ipv4Addr>().unwrap();
    let pod = pod.map(|mut pod| {
        pod.addresses.push(ipv6_of(address).into());
        pod
    });
    Place {
        name,
        address,
        pod,
        ports: ports.to_vec(),
    }
}
