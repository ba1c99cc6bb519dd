//! Join tokens: agents without a certificate that connect from addresses of no VM.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;
use virtfleet_tests::{
    sim::{
        self, Guest,
        enrol::{AgentSpec, EnrolFault, RunningAgent},
    },
    stage::STAGE_TIMEOUT,
    wait,
};

use super::kit::PushKit;

/// An address that belongs to no VM, e.g. of a NAT.
const NAT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 7));
/// The network of that address.
const NAT_NETWORK: &str = "127.0.7.0/24";

/// The output of `virtfleetctl token create`.
fn create(kit: &PushKit, cluster: &str, flags: &[&str]) -> String {
    let args: Vec<&str> = ["token", "create", cluster]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    kit.kit.ctl(&args).trim().to_owned()
}

/// The id in a token.
fn id(token: &str) -> &str {
    token.split('.').nth(1).unwrap()
}

/// An agent of this VM that connects from a NAT with this token.
fn spec(kit: &PushKit, guest: &Guest, token: &str) -> AgentSpec {
    let spec = AgentSpec::honest(guest).unwrap();
    spec.pushing_from(kit.ingest, NAT).with_token(token)
}

fn run(kit: &PushKit, guest: &Guest, token: &str) -> RunningAgent {
    kit.run(spec(kit, guest, token))
}

/// Waits until enrolments were refused for this reason.
fn until_refused(kit: &PushKit, reason: &str) {
    let start = format!("virtfleet_collector_enrolments_total{{result=\"{reason}\"}} ");
    wait::until(STAGE_TIMEOUT, &format!("{reason} is counted"), || {
        let page = kit.kit.stage.text("/metrics").unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap() != "0"
    })
    .unwrap();
}

/// Writes the VMI of a guest with another firmware UUID.
fn with_firmware(kit: &PushKit, guest: &Guest, firmware: &Guest) {
    let host = kit.kit.stage.plan.hosts[guest.host].name.clone();
    let changed = Guest {
        firmware: firmware.firmware,
        ..guest.clone()
    };
    let text = sim::vmi(&changed, &host).replacen("  labels:\n", "  labels:\n    written: again\n", 1);
    kit.kit.stage.write_vmi(guest, &text).unwrap();
    let is_read = |vm: &Value| vm["labels"]["written"] == "again";
    kit.kit.stage.until_vm(guest, "it is read", is_read).unwrap();
}

#[test]
fn vms_behind_a_nat_enrol_with_the_token_of_their_cluster() {
    let kit = PushKit::new(4, "");
    let guest = kit.kit.guest(0);
    let token = create(&kit, &guest.cluster, &["--from", NAT_NETWORK, "--ttl", "2h"]);
    let of_cluster: Vec<_> = kit.kit.stage.plan.guests.clone();
    let of_cluster = of_cluster.iter().filter(|other| other.cluster == guest.cluster);
    let agents: Vec<_> = of_cluster.clone().map(|guest| run(&kit, guest, &token)).collect();
    assert!(agents.len() > 1, "all VMs of a pool share a token");
    for guest in of_cluster {
        let vm = kit.until_way(guest, "push");
        assert_eq!(vm["enrolment"]["state"], "enrolled");
        assert_eq!(vm["findings"], 0, "{vm:#}");
    }
    let list = kit.kit.ctl(&["token", "list"]);
    for part in [id(&token), &guest.cluster, NAT_NETWORK] {
        assert!(list.contains(part), "{part}: {list}");
    }
    let left = (110..120).any(|minutes| list.contains(&format!("{minutes}m")));
    assert!(left, "almost two hours: {list}");
    let secret = token.rsplit_once('.').unwrap().1;
    let json = kit.kit.ctl(&["token", "list", "-o", "json"]);
    let listed: Value = serde_json::from_str(&json).unwrap();
    assert!(listed["items"][0]["lastUsedMs"].is_u64(), "{listed:#}");
    let stored = std::fs::read_to_string(kit.kit.stage.ca_folder().join("join-tokens.json")).unwrap();
    for text in [&json, &stored] {
        assert!(!text.contains(secret), "the secret is shown once: {text}");
    }
    // With a certificate the token is not asked for.
    let claims = agents[0].claims();
    kit.kit.let_pulls_pass(&guest, 2);
    assert_eq!(agents[0].claims(), claims);
}

#[test]
fn a_stolen_token_is_worthless_from_another_address() {
    let kit = PushKit::new(2, "");
    let (guest, own) = (kit.kit.guest(0), kit.kit.guest(1));
    let elsewhere = create(&kit, &guest.cluster, &["--from", "192.0.2.0/24"]);
    let thief = run(&kit, &guest, &elsewhere);
    until_refused(&kit, "token_address");
    // An admin sees it without a log.
    wait::eventually(STAGE_TIMEOUT, "the list says why", || {
        let list = kit.kit.ctl(&["token", "list"]);
        anyhow::ensure!(list.contains("(token_address from 127.0.7.7)"), "{list}");
        Ok(())
    })
    .unwrap();
    assert_eq!(
        (thief.requests(), thief.accepted()),
        (0, 0),
        "no CSR was asked for"
    );
    thief.stop().unwrap();
    // Without networks it is accepted only from the VM's own pod.
    let pod_only = create(&kit, &own.cluster, &["-o", "json"]);
    let created: Value = serde_json::from_str(&pod_only).unwrap();
    let thief = run(&kit, &own, created["token"].as_str().unwrap());
    wait::until(STAGE_TIMEOUT, "its claim was read", || thief.claims() > 1).unwrap();
    assert_eq!((thief.requests(), thief.accepted()), (0, 0));
    kit.until_closed("enrolment");
}

#[test]
fn expired_revoked_and_made_up_tokens_are_refused() {
    let mut kit = PushKit::new(1, "");
    let guest = kit.kit.guest(0);
    let token = create(&kit, &guest.cluster, &["--from", NAT_NETWORK]);
    let made_up = format!("{}{}", &token[..token.len() - 8], "00000000");
    let liar = run(&kit, &guest, &made_up);
    until_refused(&kit, "token_invalid");
    assert_eq!(liar.requests(), 0);
    liar.stop().unwrap();

    // The file says that it has expired.
    kit.kit.stop_collector();
    let file = kit.kit.stage.ca_folder().join("join-tokens.json");
    let mut stored: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let good = stored.clone();
    stored[0]["expires"] = 1_000_000.into();
    std::fs::write(&file, stored.to_string()).unwrap();
    kit.kit
        .stage
        .start_collector(crate::enrolment::kit::beat())
        .unwrap();
    let agent = run(&kit, &guest, &token);
    until_refused(&kit, "token_expired");
    assert_eq!(agent.requests(), 0);
    let list = kit.kit.ctl(&["token", "list"]);
    assert!(list.contains("expired"), "{list}");

    // With its own time it would work, but it is revoked.
    agent.stop().unwrap();
    kit.kit.stop_collector();
    std::fs::write(&file, good.to_string()).unwrap();
    kit.kit
        .stage
        .start_collector(crate::enrolment::kit::beat())
        .unwrap();
    let shown = kit.kit.ctl(&["token", "revoke", id(&token)]);
    assert!(shown.contains(id(&token)), "{shown}");
    let agent = run(&kit, &guest, &token);
    until_refused(&kit, "token_invalid");
    assert_eq!((agent.requests(), agent.accepted()), (0, 0));
    assert_eq!(kit.kit.ctl(&["token", "list"]), "no join tokens\n");
}

#[test]
fn a_token_of_one_cluster_enrols_no_vm_of_another() {
    let kit = PushKit::new(2, "");
    let (own, other) = (kit.kit.guest(0), kit.kit.guest(1));
    assert_ne!(own.cluster, other.cluster);
    let token = create(&kit, &own.cluster, &["--from", NAT_NETWORK]);
    let attacker = run(&kit, &other, &token);
    until_refused(&kit, "no_such_vm");
    assert_eq!((attacker.requests(), attacker.accepted()), (0, 0));
    let _honest = run(&kit, &own, &token);
    kit.until_way(&own, "push");
    assert_eq!(attacker.accepted(), 0);
}

#[test]
fn evidence_that_fits_no_vm_or_two_is_refused() {
    let kit = PushKit::new(4, "");
    let guests = kit.kit.stage.plan.guests.clone();
    let own = guests[0].clone();
    let twin = guests[1..].iter().find(|guest| guest.cluster == own.cluster);
    let token = create(&kit, &own.cluster, &["--from", NAT_NETWORK]);
    let none = kit.run(spec(&kit, &own, &token).with_fault(EnrolFault::OtherUuid));
    until_refused(&kit, "no_such_vm");
    assert_eq!(none.requests(), 0);
    none.stop().unwrap();
    with_firmware(&kit, twin.unwrap(), &own);
    let two = run(&kit, &own, &token);
    wait::until(STAGE_TIMEOUT, "its claim was read", || two.claims() > 1).unwrap();
    assert_eq!((two.requests(), two.accepted()), (0, 0));
}

#[test]
fn the_first_key_wins_and_other_evidence_must_fit() {
    let kit = PushKit::new(2, "");
    let guest = kit.kit.guest(0);
    let token = create(&kit, &guest.cluster, &["--from", NAT_NETWORK]);
    let liar = kit.run(spec(&kit, &guest, &token).with_fault(EnrolFault::OtherMac));
    kit.kit.until_refused(&guest, "mac_differs");
    assert_eq!(liar.accepted(), 0);
    liar.stop().unwrap();
    let first = run(&kit, &guest, &token);
    kit.until_way(&guest, "push");
    first.stop().unwrap();
    let second = run(&kit, &guest, &token);
    kit.kit.until_refused(&guest, "second_key");
    assert_eq!(second.accepted(), 0);
    let finding = kit.kit.until_finding(&guest, "agent-enrolment");
    assert_eq!(finding["severity"], "critical", "{finding:#}");
}

#[test]
fn a_token_for_no_cluster_and_wrong_arguments_are_refused() {
    let kit = PushKit::new(1, "");
    let cluster = kit.kit.guest(0).cluster;
    let run = |args: &[&str]| {
        kit.kit
            .stage
            .ctl()
            .unwrap()
            .args(args)
            .output(STAGE_TIMEOUT)
            .unwrap()
    };
    for (args, code) in [
        (&["token", "create", "no-such-cluster"][..], 4),
        (&["token", "create", &cluster, "--ttl", "1s"], 2),
        (&["token", "create", &cluster, "--from", "everywhere"], 2),
        (&["token", "create", "Not A Name"], 2),
        (&["token", "revoke", "000000000000"], 4),
        (&["token", "revoke", "../../ca"], 2),
        (&["token", "list", "--watch"], 2),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    }
}
