//! The NetworkPolicies that ship, enforced by the kernel in network namespaces that stand for pods:
//! beside KKP's policies, and alone. Every host dials every port of every other one.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use virtfleet_tests::{
    policy::{self, Manifest, PolicyScene, Reach},
    skip,
};

use cluster::{Tenants, kkp_default, kkp_deny};

mod cluster;
mod matrix;
mod programs;

/// The policies for a relay that serves both directions.
const RELAY: &[&str] = &["infra/networkpolicy.yaml", "relay.yaml", "push.yaml"];

/// What [`RELAY`] allows where nothing else applies.
const BY_RELAY_ALONE: &str = "collector: relay:10915 vms:* rest:*
     relay: collector:10913 vm-a:10911 vm-b:10911 dns:53
     prometheus: collector:10912 relay:10914 vms:* rest:*
     admin: collector:10912 vms:* rest:*
     vm-a: collector:10913 relay:10913 vms:* rest:*
     vm-b: collector:10913 relay:10913 vms:* rest:*
     other-vm: collector:10913 vms:* rest:*
     *: vms:* rest:*";

/// The scene without policies, or `None` if the machine cannot run it.
fn scene(test: &str, tenants: Tenants) -> Option<PolicyScene> {
    skip::need(2, test, policy::needs()).unwrap()?;
    Some(PolicyScene::new(tenants.places()).unwrap())
}

#[test]
fn tier2_beside_kkps_default_policy_the_collector_pulls_directly_and_vms_push_through_the_relay() {
    let test = "tier2_beside_kkps_default_policy_the_collector_pulls_directly_and_vms_push_through_the_relay";
    let tenants = Tenants::Apart;
    let Some(mut scene) = scene(test, tenants) else {
        return;
    };
    let policies = [tenants.policies(RELAY), kkp_default()].concat();
    scene.apply(&policies).unwrap();
    // KKP's policy selects the relay, too, so it also reaches what the VMs reach.
    matrix::check(
        &scene,
        "collector: relay:10915 vms:* rest:*
         relay: collector:10913 vm-a:* vm-b:* relay-neighbour:* dns:53 outside:*
         relay-neighbour: vm-a:* vm-b:* dns:53 outside:*
         prometheus: collector:10912 relay:10914 vms:* rest:*
         admin: collector:10912 vms:* rest:*
         vm-a: relay:10913 vm-b:* relay-neighbour:* dns:53 outside:*
         vm-b: relay:10913 vm-a:* relay-neighbour:* dns:53 outside:*
         other-vm: dns:53 outside:*
         *: vms:* rest:*",
    );
    let by_own_policy = [
        "vm-a collector:10912",
        "vm-a collector:10913",
        "other-vm relay:10913",
    ];
    matrix::check_each(&scene, &by_own_policy, Reach::EgressDenied);
    let by_policy_of_server = ["foreign relay:10915", "vm-a relay:10915", "collector relay:10913"];
    matrix::check_each(&scene, &by_policy_of_server, Reach::IngressDenied);

    // With it, VMs push directly, too.
    let egress = tenants.policies(&["push-egress.yaml"]);
    scene.apply(&[policies, egress].concat()).unwrap();
    matrix::check_each(&scene, &["vm-a collector:10913"], Reach::Open);
    let closed = [
        "vm-a collector:10912",
        "other-vm collector:10913",
        "other-vm vm-a:10911",
    ];
    matrix::check_each(&scene, &closed, Reach::EgressDenied);
}

#[test]
fn tier2_in_kkps_deny_mode_direct_pulls_and_the_relay_need_pull_and_push_egress() {
    let test = "tier2_in_kkps_deny_mode_direct_pulls_and_the_relay_need_pull_and_push_egress";
    let tenants = Tenants::Together;
    let Some(mut scene) = scene(test, tenants) else {
        return;
    };
    let before = [tenants.policies(RELAY), kkp_deny()].concat();
    scene.apply(&before).unwrap();
    let pull = ["collector vm-a:10911", "relay vm-a:10911"];
    let push = ["vm-a collector:10913", "vm-a relay:10913"];
    matrix::check_each(&scene, &pull, Reach::IngressDenied);
    matrix::check_each(&scene, &push, Reach::EgressDenied);

    let vms = tenants.policies(&["pull.yaml", "push-egress.yaml"]);
    let opened = [pull, push].concat();
    matrix::check_each_peer_is_needed(&mut scene, &before, &vms, &opened);
    // The other tenant's VMs, in the same namespace, reach only each other.
    matrix::check(
        &scene,
        "collector: relay:10915 vm-a:10911 vm-b:10911 rest:*
         relay: collector:10913 vm-a:10911 vm-b:10911 dns:53
         prometheus: collector:10912 relay:10914 rest:*
         admin: collector:10912 rest:*
         vm-a: collector:10913 relay:10913 vm-b:* dns:* user-api-server:*
         vm-b: collector:10913 relay:10913 vm-a:* dns:* user-api-server:*
         other-vm: dns:* user-api-server:*
         user-api-server: vms:* rest:*
         *: rest:*",
    );
}

#[test]
fn tier2_the_shipped_policies_apply_to_ipv6_too() {
    let tenants = Tenants::Apart;
    let Some(mut scene) = scene("tier2_the_shipped_policies_apply_to_ipv6_too", tenants) else {
        return;
    };
    scene.use_ipv6();
    matrix::check_each(&scene, &["foreign collector:10914"], Reach::Open);
    scene.apply(&tenants.policies(RELAY)).unwrap();
    matrix::check(&scene, BY_RELAY_ALONE);
    // Nothing in them is an address, and `pull.yaml` and `push-egress.yaml` open their ports only.
    scene
        .apply(&tenants.policies(&["pull.yaml", "push-egress.yaml"]))
        .unwrap();
    matrix::check_each(&scene, &["vm-a internet:443"], Reach::EgressDenied);
    matrix::check_each(&scene, &["foreign vm-a:22"], Reach::IngressDenied);
    matrix::check_each(&scene, &["collector vm-a:10911"], Reach::Open);
}

#[test]
fn tier2_each_peer_of_the_shipped_policies_is_needed_and_allows_its_port_only() {
    let test = "tier2_each_peer_of_the_shipped_policies_is_needed_and_allows_its_port_only";
    let tenants = Tenants::Apart;
    let Some(mut scene) = scene(test, tenants) else {
        return;
    };
    let policies = tenants.policies(RELAY);
    let ways = [
        "collector relay:10915",
        "relay vm-a:10911",
        "vm-a relay:10913",
        "vm-a collector:10913",
        "relay collector:10913",
        "relay dns:53",
        "prometheus collector:10912",
        "prometheus relay:10914",
        "admin collector:10912",
    ];
    matrix::check_each_peer_is_needed(&mut scene, &[], &policies, &ways);
    matrix::check(&scene, BY_RELAY_ALONE);

    matrix::check_each(&scene, &["relay collector:10912"], Reach::EgressDenied);

    // virtfleetctl through the API server: its address is a comment in the shipped file.
    let infra = Manifest::shipped("infra/networkpolicy.yaml").unwrap();
    let infra = infra.replace(
        "# - ipBlock: { cidr: 192.0.2.0/28 }",
        "- ipBlock: { cidr: 192.0.2.0/28 }",
    );
    scene.apply(&infra.unwrap().policies().unwrap()).unwrap();
    matrix::check_each(&scene, &["api-server collector:10912"], Reach::Open);
    let closed = ["api-server collector:10914", "internet collector:10912"];
    matrix::check_each(&scene, &closed, Reach::IngressDenied);

    // Why pull.yaml and push-egress.yaml must not be applied alone.
    scene
        .apply(&tenants.policies(&["pull.yaml", "push-egress.yaml"]))
        .unwrap();
    matrix::check_each(
        &scene,
        &["vm-b vm-a:22", "vm-a internet:443"],
        Reach::EgressDenied,
    );
    matrix::check_each(&scene, &["foreign vm-a:22"], Reach::IngressDenied);
    matrix::check_each(&scene, &["collector vm-a:10911"], Reach::Open);
}
