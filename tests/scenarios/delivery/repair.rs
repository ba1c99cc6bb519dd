//! What an interrupted first boot of cloud-init left empty.

use super::{guest::Guest, sources::needs};

const NETWORK: &str = "root/etc/systemd/network/10-cloud-init-enp5s0.network";

fn damaged(more: &str) -> Guest {
    let guest = Guest::new();
    guest.tool("sleep", "");
    guest.deliver_the_source(more);
    guest.write(NETWORK, "");
    guest.write("root/var/lib/cloud/data/set-hostname", "{}");
    guest
}

fn repairs(guest: &Guest) -> usize {
    let calls = guest.calls();
    let cleaned = calls.iter().filter(|call| *call == "cloud-init clean").count();
    let reboots = calls.iter().filter(|call| *call == "systemctl reboot").count();
    assert_eq!(cleaned, reboots, "{calls:?}");
    cleaned
}

#[test]
fn tier2_a_first_boot_that_left_files_empty_is_made_again_at_most_twice() {
    if !needs(
        "tier2_a_first_boot_that_left_files_empty_is_made_again_at_most_twice",
        &["dash"],
    ) {
        return;
    }
    let guest = damaged("");
    for (expected, left) in [(1, ""), (2, "\0\0\0\0"), (2, "")] {
        guest.write(NETWORK, left);
        let ran = guest.boot();
        assert_eq!(ran.code, Some(0), "{}", ran.said);
        assert_eq!(repairs(&guest), expected, "{}", ran.said);
        assert!(ran.said.contains("10-cloud-init-enp5s0.network"), "{}", ran.said);
        assert!(guest.has_agent());
    }
    assert_eq!(guest.text("root/var/lib/virtfleet/delivery/repairs"), "2\n");
    assert!(
        guest
            .text("root/dev/console")
            .contains("two repairs did not help")
    );
}

#[test]
fn tier2_nothing_of_the_users_is_ever_run_twice() {
    if !needs("tier2_nothing_of_the_users_is_ever_run_twice", &["dash"]) {
        return;
    }
    for mark in [
        "boot-finished",
        "sem/config_scripts_user",
        "sem/config_disk_setup.once",
    ] {
        let guest = damaged("");
        guest.write(&format!("root/var/lib/cloud/instance/{mark}"), "");
        let ran = guest.boot();
        assert_eq!(repairs(&guest), 0, "{mark}: {}", ran.said);
        assert!(
            ran.said.contains("user-data has run already"),
            "{mark}: {}",
            ran.said
        );
    }
    let guest = damaged("repairCloudInit: false\n");
    let ran = guest.boot();
    assert_eq!(repairs(&guest), 0, "{}", ran.said);
    assert!(ran.said.contains("repairCloudInit is false"), "{}", ran.said);
    // Nor by the unit, beside which cloud-init may be at work.
    let guest = damaged("");
    guest.boot();
    guest.write(NETWORK, "");
    let ran = guest.service();
    assert_eq!(repairs(&guest), 1, "{}", ran.said);
    assert!(ran.said.contains("cloud-init clean --reboot"), "{}", ran.said);
}
