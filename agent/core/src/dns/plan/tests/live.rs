//! A node on which no link may be reconfigured.

use super::{
    owners::{FOR_NETPLANS, NETPLANS},
    *,
};

#[test]
fn live_node_links_are_not_reconfigured() {
    let mut seen = resolved("169.254.20.10 10.0.0.1", "cluster.local");
    seen.live = Some("kubelet runs".to_owned());
    let answers = healthy("169.254.20.10 10.0.0.1");
    let first = plan(&asked(), &seen, &answers);
    assert_eq!(
        short(&first),
        [
            format!("write {}", ours::RESOLVED),
            "reload Resolved".to_owned(),
            format!("write {NETWORKD}"),
            "quiet eth0".to_owned(),
            "flush".to_owned(),
        ]
    );
    let done = after(&seen, &first);
    assert_eq!(effective(&done).nameservers, ips("10.0.0.1"));
    assert!(plan(&asked(), &done, &answers).steps.is_empty());
    // The link's nameservers are restored before systemd-resolved loses the agent's.
    let off = Asked {
        manage: DnsManage::Off,
        ..asked()
    };
    assert_eq!(
        short(&plan(&off, &done, &[])),
        [
            "speak eth0 169.254.20.10 10.0.0.1".to_owned(),
            format!("remove {NETWORKD}"),
            format!("remove {}", ours::RESOLVED),
            "reload Resolved".to_owned(),
            "flush".to_owned(),
        ]
    );
    // A manual run applies it permanently, and no run-time change remains.
    let by_hand = Seen { live: None, ..seen };
    assert!(short(&plan(&asked(), &by_hand, &answers)).contains(&"reload Networkd".to_owned()));
    let done = Seen { live: None, ..done };
    assert!(plan(&asked(), &done, &answers).steps.is_empty());
}

#[test]
fn netplan_links_are_suppressed_and_survive_a_networkd_restart() {
    let mut seen = resolved("169.254.20.10 10.0.0.1", "");
    seen.links[0].profile = Some(NETPLANS.to_owned());
    seen.live = Some("kubelet runs".to_owned());
    let plan = plan(&asked(), &seen, &healthy("10.0.0.1"));
    let steps = short(&plan);
    assert!(steps.contains(&format!("write {FOR_NETPLANS}")), "{steps:?}");
    assert!(steps.contains(&"quiet eth0".to_owned()), "{steps:?}");
    assert!(
        !steps.iter().any(|step| step.starts_with("reload N")),
        "{steps:?}"
    );
    let mut restarted = after(&seen, &plan);
    world::read(&mut restarted);
    assert!(restarted.links[0].told.nameservers.is_empty());
}

#[test]
fn link_is_suppressed_again_after_a_networkd_restart() {
    let mut seen = resolved("169.254.20.10 10.0.0.1", "");
    let answers = healthy("10.0.0.1");
    let done = after(&seen, &plan(&asked(), &seen, &answers));
    for live in [Some("kubelet runs".to_owned()), None] {
        let mut again = done.clone();
        again.live = live;
        again.links[0].told = conf("169.254.20.10", "", "");
        assert_eq!(short(&plan(&asked(), &again, &answers)), ["quiet eth0", "flush"]);
        again.missing_tools.push("resolvectl".to_owned());
        let plan = plan(&asked(), &again, &answers);
        assert!(plan.steps.is_empty());
        let refused = plan.refusals.iter().any(|one| one.kind == RefusalKind::NoTool);
        assert_eq!(refused, again.live.is_some());
    }
    // Without resolvectl nothing is done until a manual run.
    seen.live = Some("kubelet runs".to_owned());
    seen.missing_tools.push("resolvectl".to_owned());
    let plan = plan(&asked(), &seen, &answers);
    assert!(plan.steps.is_empty());
    assert!(
        plan.refusals[0].remedy.contains("apply dns"),
        "{:?}",
        plan.refusals
    );
}
