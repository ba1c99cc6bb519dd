use std::time::{Duration, Instant};

use super::*;

/// NetworkManager announces it again when the change is reverted.
#[test]
fn a_link_is_reverted_and_a_failure_to_do_so_does_not_revert_the_change() {
    let dir = tempfile::tempdir().unwrap();
    let roots = roots_at(dir.path());
    let steps = [DnsStep::Revert {
        link: "eth0".to_owned(),
    }];
    let commands = FakeCommands::content();
    let applied = apply(&roots, &commands, &NoFailPoints, &steps, &mut || Ok(())).unwrap();
    assert_eq!(commands.take(), ["resolvectl revert eth0"]);
    assert_eq!(
        (applied.done, applied.notes.len()),
        (vec!["revert eth0".to_owned()], 0)
    );
    let none = FakeCommands::new(|_| None);
    let applied = apply(&roots, &none, &NoFailPoints, &steps, &mut || Ok(())).unwrap();
    assert_eq!(applied.notes.len(), 1);
}

/// `off`: networkd has reloaded, and a lease arrives later.
#[test]
fn a_restore_waits_for_the_links_servers() {
    let guest = Guest::new();
    let (roots, commands) = (&guest.roots, &guest.commands);
    apply(roots, commands, &NoFailPoints, &Guest::steps(), &mut || Ok(())).unwrap();
    let link = roots.root("/run/systemd/netif/links/2");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    fs::write(&link, "ADMIN_STATE=configured\n").unwrap();
    let leased = link.clone();
    let commands = FakeCommands::new(move |line| {
        let leased = leased.clone();
        if line.starts_with("networkctl") {
            std::thread::spawn(move || {
                nix::poll::poll(&mut [], 120u8).unwrap();
                fs::write(leased, LEASED).unwrap();
            });
        } else if line.starts_with("systemctl") {
            assert_eq!(fs::read_to_string(&leased).unwrap(), LEASED);
        }
        Some(CommandOutput::default())
    });
    let remove = |path: &str| DnsStep::RemoveFile {
        path: path.to_owned(),
    };
    let steps = [
        remove(NETWORKD),
        reload(Service::Networkd),
        remove(RESOLVED),
        reload(Service::Resolved),
    ];
    apply(roots, &commands, &NoFailPoints, &steps, &mut || Ok(())).unwrap();
    assert_eq!(commands.take(), ["networkctl reload", FORGOTTEN, RESTARTED]);
}

/// systemd 252 may leave a link without an address if it must reconfigure it while it acquires a
/// lease.
#[test]
fn networkd_is_reloaded_after_it_has_configured_its_links() {
    let guest = Guest::new();
    let links = guest.roots.root("/run/systemd/netif/links");
    fs::create_dir_all(&links).unwrap();
    // Never configured; the wait is bounded.
    fs::write(
        links.join("3"),
        "ADMIN_STATE=configuring\nCARRIER_STATE=no-carrier\n",
    )
    .unwrap();
    let link = links.join("2");
    fs::write(&link, "ADMIN_STATE=configuring\nCARRIER_STATE=carrier\n").unwrap();
    let leased = link.clone();
    let begun = Instant::now();
    let lease = std::thread::spawn(move || {
        nix::poll::poll(&mut [], 120u8).unwrap();
        fs::write(leased, LEASED).unwrap();
    });
    let commands = FakeCommands::new(move |line| {
        assert_eq!(line, "networkctl reload");
        assert_eq!(fs::read_to_string(&link).unwrap(), LEASED);
        Some(CommandOutput::default())
    });
    let steps = [reload(Service::Networkd)];
    apply(&guest.roots, &commands, &NoFailPoints, &steps, &mut || Ok(())).unwrap();
    lease.join().unwrap();
    assert_eq!(commands.take(), ["networkctl reload"]);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// systemd-resolved of systemd 252 is restarted instead of reloaded, and systemd stops it after
/// five restarts in ten seconds.
#[test]
fn the_restart_counter_of_resolved_is_reset_first_and_failures_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let roots = roots_at(dir.path());
    let commands = FakeCommands::new(|line| {
        Some(CommandOutput {
            code: i32::from(line.contains("reset-failed")),
            ..CommandOutput::default()
        })
    });
    let steps = [write("[Resolve]\n", RESOLVED), reload(Service::Resolved)];
    apply(&roots, &commands, &NoFailPoints, &steps, &mut || Ok(())).unwrap();
    assert_eq!(commands.take(), [FORGOTTEN, RELOADED]);
}

/// A reload alone keeps the agent's domains, and a restart interrupts the stub.
#[test]
fn resolved_drops_the_agents_domains_without_a_restart_where_possible() {
    const FORGET: &str = "/run/systemd/resolved.conf.d/zz-virtfleet-forget.conf";
    const CAN: &str = "systemctl show --property=CanReload --value systemd-resolved";
    const RELOADED_ONCE: &str = "systemctl reload systemd-resolved";
    let case = |can: &'static str, others: &str, uplinks: &str, reloads: bool, link: &str| {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots_at(dir.path());
        let put = |path: &str, text: &str| {
            let path = roots.root(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(RESOLVED, ours::MARK);
        put("/run/systemd/resolve/resolv.conf", uplinks);
        put("/etc/systemd/resolved.conf", others);
        // Left by a crash.
        put(FORGET, ours::MARK);
        symlink(link, roots.root("/etc/resolv.conf")).unwrap();
        let at = roots.root(FORGET);
        let reloaded_once = Mutex::new(false);
        let commands = FakeCommands::new(move |line| {
            let there = fs::read_to_string(&at).is_ok_and(|text| text.ends_with("[Resolve]\nDomains=\n"));
            // Present in the first reload only.
            let first = !std::mem::replace(&mut *reloaded_once.lock().unwrap(), line == RELOADED_ONCE);
            assert_eq!(there, line == RELOADED_ONCE && first, "{line}");
            if line == RELOADED_ONCE && !reloads {
                return None;
            }
            let stdout = if line == CAN { can } else { "" };
            Some(CommandOutput {
                stdout: stdout.to_owned(),
                ..CommandOutput::default()
            })
        });
        let steps = [
            DnsStep::RemoveFile {
                path: RESOLVED.to_owned(),
            },
            reload(Service::Resolved),
        ];
        apply(&roots, &commands, &NoFailPoints, &steps, &mut || Ok(())).unwrap();
        assert!(!roots.root(FORGET).exists());
        commands.take()
    };
    let (stub, own) = (
        "../run/systemd/resolve/stub-resolv.conf",
        "/run/resolvconf/resolv.conf",
    );
    let some = "nameserver 192.0.2.9\n";
    let comment = "[Resolve]\n#Domains=a.example\nDomains=\n";
    assert_eq!(
        case("yes\n", comment, some, true, stub),
        [FORGOTTEN, CAN, RELOADED_ONCE]
    );
    assert_eq!(
        case("yes\n", "[Resolve]\nDomains = a.example\n", some, true, stub),
        [FORGOTTEN, CAN, RELOADED_ONCE, RELOADED_ONCE]
    );
    assert_eq!(case("no\n", "", some, true, stub), [FORGOTTEN, CAN, RESTARTED]);
    assert_eq!(
        case("yes\n", "", "# none\n", true, stub),
        [FORGOTTEN, CAN, RELOADED_ONCE, RESTARTED]
    );
    assert_eq!(
        case("yes\n", "", some, false, stub),
        [FORGOTTEN, CAN, RELOADED_ONCE, RESTARTED]
    );
    assert_eq!(case("yes\n", "", some, true, own), [FORGOTTEN, RESTARTED]);
}

fn quiet() -> DnsStep {
    DnsStep::SuppressLink {
        link: "eth0".to_owned(),
    }
}

const QUIETED: [&str; 2] = ["resolvectl dns eth0 ", "resolvectl domain eth0 "];
const FORGOTTEN: &str = "systemctl reset-failed systemd-resolved";
const RELOADED: &str = "systemctl try-reload-or-restart systemd-resolved";
/// Without a file of the agent.
const RESTARTED: &str = "systemctl try-restart systemd-resolved";

#[test]
fn announcements_stop_without_reconfiguration_and_resume_before_the_agents_servers_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let roots = roots_at(dir.path());
    let commands = FakeCommands::content();
    let steps = [
        write("[Resolve]\n", RESOLVED),
        reload(Service::Resolved),
        write("[DHCPv4]\n", NETWORKD),
        quiet(),
    ];
    let error = apply(&roots, &commands, &NoFailPoints, &steps, &mut || {
        Err("no".to_owned())
    })
    .unwrap_err();
    assert!(matches!(error, ApplyDnsError::RolledBack { .. }));
    assert_eq!(
        commands.take(),
        [
            FORGOTTEN,
            RELOADED,
            QUIETED[0],
            QUIETED[1],
            "resolvectl revert eth0",
            FORGOTTEN,
            RESTARTED
        ]
    );
    assert!(!unfinished(&roots) && !roots.root(NETWORKD).exists());
    // The same after a crash.
    let kill = Kill::at(6, |_| {});
    assert!(killed(|| drop(apply(
        &roots,
        &commands,
        &kill,
        &steps,
        &mut || Ok(())
    ))));
    assert_eq!(kill.points.borrow().last().unwrap(), "before end");
    commands.take();
    recover(&roots, &commands).unwrap().unwrap();
    assert_eq!(commands.take(), ["resolvectl revert eth0", FORGOTTEN, RESTARTED]);
    // If the announcements cannot be stopped, the change is reverted.
    let none = FakeCommands::new(|line| (!line.starts_with("resolvectl d")).then(CommandOutput::default));
    apply(&roots, &none, &NoFailPoints, &steps, &mut || Ok(())).unwrap_err();
    assert!(!roots.root(NETWORKD).exists() && !roots.root(RESOLVED).exists());
}

#[test]
fn a_link_without_settings_gets_the_platforms() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots {
        sysfs: dir.path().join("sys"),
        ..roots_at(dir.path())
    };
    let put = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put(&roots.sys("class/net/eth0/ifindex"), "2\n");
    let link = roots.root("/run/systemd/netif/links/2");
    put(&link, "DNS=192.0.2.9\n");
    let steps = [DnsStep::RestoreLink {
        link: "eth0".to_owned(),
        nameservers: vec!["192.0.2.9".to_owned()],
        searches: vec!["a.example".to_owned()],
    }];
    let commands = FakeCommands::content();
    let go = |verified: Result<(), String>| {
        apply(&roots, &commands, &NoFailPoints, &steps, &mut || verified.clone()).ok();
        commands.take()
    };
    assert_eq!(go(Ok(())), ["resolvectl revert eth0"]);
    let file = link.clone();
    put(&link, "DNS=\n");
    let commands = FakeCommands::new(move |line| {
        if line.starts_with("resolvectl dns") {
            fs::write(&file, "DNS=192.0.2.9\n").unwrap();
        }
        Some(CommandOutput::default())
    });
    apply(&roots, &commands, &NoFailPoints, &steps, &mut || {
        Err("no".to_owned())
    })
    .unwrap_err();
    assert_eq!(
        commands.take(),
        [
            "resolvectl revert eth0",
            "resolvectl dns eth0 192.0.2.9",
            "resolvectl domain eth0 a.example",
            QUIETED[0],
            QUIETED[1],
        ]
    );
}

/// The time for the change is used up, that for the restore is not.
#[test]
fn a_restore_has_its_own_commands() {
    let guest = Guest::new();
    let late = FakeCommands::new(|_| None);
    let error = apply_with(
        &guest.roots,
        &late,
        &guest.commands,
        &NoFailPoints,
        &Guest::steps(),
        &mut || Ok(()),
    );
    assert!(matches!(error.unwrap_err(), ApplyDnsError::RolledBack { .. }));
    assert!(guest.is_old());
    assert_eq!(guest.commands.take().len(), 3);
}

/// The change was begun at boot or by an admin, and was interrupted.
#[test]
fn on_a_live_node_an_interrupted_change_is_reverted_without_reconfiguring_links() {
    let guest = Guest::new();
    let roots = &guest.roots;
    let mut link = Link {
        name: "eth0".to_owned(),
        profile: Some("/run/systemd/network/10-eth.network".to_owned()),
        ..Default::default()
    };
    let mut given = virtfleet_agent_core::dns::seen::Given::default();
    given.conf.nameservers.push("192.0.2.9".parse().unwrap());
    link.given.push(given);
    let kill = Kill::at(5, |_| {});
    assert!(killed(|| drop(apply(
        roots,
        &guest.commands,
        &kill,
        &Guest::steps(),
        &mut || Ok(())
    ))));
    let commands = FakeCommands::content();
    recover_live(roots, &commands, std::slice::from_ref(&link)).unwrap();
    assert!(!unfinished(roots) && !roots.root(NETWORKD).exists() && !roots.root(RESOLVED).exists());
    assert_eq!(
        commands.take(),
        [
            "resolvectl revert eth0",
            "resolvectl dns eth0 192.0.2.9",
            "resolvectl domain eth0 ",
            FORGOTTEN,
            RESTARTED
        ]
    );
}

/// The service whose files are removed may have been uninstalled before.
#[test]
fn a_stopped_service_is_not_reloaded() {
    let dir = tempfile::tempdir().unwrap();
    let roots = roots_at(dir.path());
    let no_commands = FakeCommands::new(|_| None);
    for (service, id) in [
        (Service::Resolved, 1),
        (Service::Networkd, 2),
        (Service::NetworkManager, 3),
    ] {
        let go = || {
            apply(
                &roots,
                &no_commands,
                &NoFailPoints,
                &[reload(service)],
                &mut || Ok(()),
            )
        };
        assert!(matches!(go().unwrap_err(), ApplyDnsError::RolledBack { .. }));
        fs::remove_dir_all(roots.proc(id.to_string())).unwrap();
        assert_eq!(go().unwrap().reloaded, [service]);
    }
}

/// After a reset networkd has started with or without the drop-in, and runtime settings are lost.
#[test]
fn a_change_interrupted_by_a_reset_is_reverted_with_a_reload_of_networkd() {
    let forward = [
        write("[Resolve]\n", RESOLVED),
        reload(Service::Resolved),
        write("[DHCPv4]\n", NETWORKD),
        quiet(),
    ];
    let remove = |path: &str| DnsStep::RemoveFile {
        path: path.to_owned(),
    };
    let back = [
        DnsStep::RestoreLink {
            link: "eth0".to_owned(),
            nameservers: Vec::new(),
            searches: Vec::new(),
        },
        remove(NETWORKD),
        remove(RESOLVED),
        reload(Service::Resolved),
    ];
    let dir = tempfile::tempdir().unwrap();
    let roots = roots_at(dir.path());
    let boot = |id: &str| {
        let path = roots.proc("sys/kernel/random/boot_id");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{id}\n")).unwrap();
    };
    let cut = |steps: &[DnsStep], at: usize| {
        boot("one");
        let kill = Kill::at(at, |_| {});
        let commands = FakeCommands::content();
        assert!(killed(|| drop(apply(
            &roots,
            &commands,
            &kill,
            steps,
            &mut || Ok(())
        ))));
        boot("two");
        let commands = FakeCommands::content();
        recover(&roots, &commands).unwrap().unwrap();
        commands.take()
    };
    assert_eq!(cut(&forward, 6), ["networkctl reload", FORGOTTEN, RESTARTED]);
    assert!(!roots.root(NETWORKD).exists() && !roots.root(RESOLVED).exists());
    let commands = FakeCommands::content();
    apply(&roots, &commands, &NoFailPoints, &forward, &mut || Ok(())).unwrap();
    assert_eq!(cut(&back, 6), [FORGOTTEN, RELOADED, "networkctl reload"]);
    assert!(roots.root(NETWORKD).exists() && roots.root(RESOLVED).exists());
}
