//! Links of netplan, and owners that were removed.

use super::*;

/// At its next start networkd reads netplan's files in `/run` again, before netplan has generated
/// new ones.
pub(super) const NETPLANS: &str = "/run/systemd/network/10-netplan-eth0.network";
pub(super) const FOR_NETPLANS: &str = "/etc/systemd/network/10-netplan-eth0.network.d/zz-virtfleet.conf";

#[test]
fn netplan_links_use_networkd_drop_ins() {
    let mut seen = resolved("169.254.20.10 10.0.0.1", "");
    seen.links[0].profile = Some(NETPLANS.to_owned());
    let first = plan(&asked(), &seen, &healthy("10.0.0.1"));
    assert_eq!(
        short(&first),
        [
            format!("write {}", ours::RESOLVED),
            "reload Resolved".to_owned(),
            format!("write {FOR_NETPLANS}"),
            "reload Networkd".to_owned(),
            "revert eth0".to_owned(),
            "flush".to_owned(),
        ]
    );
    // `off` on a live node: the file is removed, so networkd reads nothing of it at its next start.
    let mut done = after(&seen, &first);
    assert!(done.links[0].told.nameservers.is_empty());
    done.live = Some("kubelet runs".to_owned());
    let off = Asked {
        manage: DnsManage::Off,
        ..asked()
    };
    let mut undone = after(&done, &plan(&off, &done, &[]));
    world::read(&mut undone);
    assert_eq!(undone.links[0].told.nameservers, ips("169.254.20.10 10.0.0.1"));
    assert_eq!(ours::files(&undone).count(), 0);
}

/// `apt remove network-manager` while the agent's file for it exists.
#[test]
fn uninstalled_owner_is_no_obstacle() {
    let mut seen = resolved("169.254.20.10 10.0.0.1", "");
    let mark = format!("{}\n", ours::MARK);
    seen.files.insert(ours::NETWORK_MANAGER.to_owned(), mark.clone());
    seen.missing_tools.push("nmcli".to_owned());
    for manage in [DnsManage::Auto, DnsManage::Off] {
        let plan = plan(&Asked { manage, ..asked() }, &seen, &healthy("10.0.0.1"));
        assert_eq!(plan.refusals, []);
        assert!(short(&plan).contains(&format!("remove {}", ours::NETWORK_MANAGER)));
    }
}
