//! `manage: off`, and a stage of the boot that has run out of time.

use super::*;

#[test]
fn off_restores_only_what_answers_unless_an_admin_applies_or_nothing_answered_before() {
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
    // The next run does not retry.
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
fn without_time_for_a_rollback_no_change_begins() {
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
    // Every probe is counted.
    let asked = &passed.state.questions;
    assert!(asked[&GOOD.parse::<IpAddr>().unwrap()] >= 6, "{asked:?}");
}

/// What an interrupted run left is undone. A run that no admin started does not reconfigure links
/// of a live node.
#[test]
fn recovery_does_not_reconfigure_the_links_of_a_live_node() {
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
        // Programs that are installed.
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

/// Overwrites `/etc/resolv.conf` as soon as our file is written.
struct Meddler(std::path::PathBuf);

impl FailPoints for Meddler {
    fn at(&self, point: &str) {
        if point == "after write /etc/resolv.conf" {
            fs::write(&self.0, "nameserver 192.0.2.99\n").unwrap();
        }
    }
}

#[test]
fn a_file_overwritten_during_verification_is_written_again_by_the_next_run() {
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
