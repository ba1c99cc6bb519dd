//! `manage: off`, and a stage of the boot whose time is over.

use super::*;

#[test]
fn what_is_given_back_answers_or_ours_stays_unless_a_person_asks_or_nothing_answered_before() {
    let only_ours: fn(&str, &str) -> bool = |who, _| who == GOOD;
    let nobody: fn(&str, &str) -> bool = |_, _| false;
    let taken = || {
        let guest = Guest::new(AUTO);
        guest.pass(all, by_stage());
        guest.settings("dns: {manage: off}\n");
        guest
    };
    let guest = taken();
    let off = guest.pass(only_ours, by_stage());
    assert_eq!((off.changed, off.state.rollbacks), (false, 1), "{:?}", off.state);
    assert!(guest.resolv_conf().contains(GOOD));
    assert!(off.state.error.as_ref().unwrap().contains(CACHE));
    assert!(off.state.findings.iter().any(|one| one.id == "dns-pass-failed"));
    // Not over and over.
    let again = guest.pass(only_ours, by_stage());
    assert_eq!((again.state.rollbacks, again.changed), (1, false));
    assert!(again.state.error.is_some());
    assert!(guest.pass(only_ours, Mode::of_admin(None)).changed);
    assert_eq!(guest.resolv_conf(), format!("nameserver {CACHE}\n"));
    let guest = taken();
    assert!(guest.pass(nobody, by_stage()).changed);
    assert_eq!(guest.resolv_conf(), format!("nameserver {CACHE}\n"));
}

#[test]
fn without_time_to_put_back_nothing_is_begun() {
    let guest = Guest::new(AUTO);
    let before = guest.resolv_conf();
    let how = |seconds| Mode::of_stage(Stage::Dns, Some(Duration::from_secs(seconds)));
    let late = guest.pass(all, how(35));
    assert!(!late.changed && failed(&late.state));
    assert!(late.state.error.as_ref().unwrap().contains("no time left"));
    assert_eq!((guest.resolv_conf(), late.state.rollbacks), (before, 0));
    let passed = guest.pass(all, how(80));
    assert_eq!(
        (passed.changed, passed.state.standing),
        (true, DnsStatus::Verified)
    );
    // Every question is counted.
    let asked = &passed.state.questions;
    assert!(asked[&GOOD.parse::<IpAddr>().unwrap()] >= 6, "{asked:?}");
}

/// What a crash has left is undone, and a pass by itself has no link of a live node configured anew.
#[test]
fn a_pass_that_undoes_spares_the_links_of_a_live_node() {
    use std::os::unix::fs::PermissionsExt as _;
    for (live, by_admin, reloads) in [(true, false, false), (true, true, true), (false, false, true)] {
        let guest = Guest::new(REPORT);
        guest.write("sys/class/net/eth0/ifindex", "2\n");
        fs::create_dir_all(guest.dir.path().join("sys/class/net/eth0/device")).unwrap();
        guest.write(
            "root/run/systemd/netif/links/2",
            "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/10-eth0.network\n",
        );
        if live {
            guest.write("proc/77/comm", "kubelet\n");
        }
        // Programs that are there.
        guest.write("root/usr/bin/resolvectl", "");
        let program = guest.dir.path().join("root/usr/bin/resolvectl");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        let journal = r#"{"format":1,"places":[],"services":["networkd"]}"#;
        guest.write("root/var/lib/virtfleet/dns/undo.json", journal);
        let mode = if by_admin {
            Mode::of_admin(None)
        } else {
            by_stage()
        };
        let said = guest.with(all, |provisioner| {
            let commands = FakeCommands::content();
            let provisioner = DnsProvisioner {
                commands: &commands,
                ..*provisioner
            };
            provisioner.run(&guest.wanted(), mode).unwrap().unwrap();
            commands.take()
        });
        let reloaded = said.iter().any(|line| line == "networkctl reload");
        assert_eq!(reloaded, reloads, "{live} {by_admin}: {said:?}");
    }
}

/// Writes `/etc/resolv.conf` over as soon as ours is there.
struct Meddler(std::path::PathBuf);

impl FailPoints for Meddler {
    fn at(&self, point: &str) {
        if point == "after write /etc/resolv.conf" {
            fs::write(&self.0, "nameserver 192.0.2.99\n").unwrap();
        }
    }
}

#[test]
fn what_somebody_writes_over_while_it_is_verified_is_written_again_by_the_next_pass() {
    let guest = Guest::new(AUTO);
    let alive: fn(&str, &str) -> bool = |who, _| who != "192.0.2.99";
    let meddler = Meddler(guest.roots.root("/etc/resolv.conf"));
    let passed = guest.with(alive, |provisioner| {
        let provisioner = DnsProvisioner {
            fail_points: &meddler,
            ..*provisioner
        };
        provisioner.run(&guest.wanted(), by_stage()).unwrap().unwrap()
    });
    let error = passed.state.error.unwrap_or_default();
    assert!(error.contains("restored the previous"), "{error}");
    assert_eq!((passed.state.rollbacks, passed.state.put_back), (1, Vec::new()));
    assert_eq!(guest.resolv_conf(), "nameserver 192.0.2.99\n");
    let next = guest.pass(alive, by_stage());
    assert_eq!(next.state.standing, DnsStatus::Verified, "{:?}", next.state.error);
    assert!(next.changed && guest.resolv_conf().contains(GOOD));
}
