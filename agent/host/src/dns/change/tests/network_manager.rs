use super::*;

/// systemd-resolved in front of NetworkManager: reverted by `off` and after a failed verification.
#[test]
fn network_manager_announces_before_the_agents_servers_are_removed() {
    const NM: &str = "/etc/NetworkManager/conf.d/zz-virtfleet.conf";
    let disabled = format!("{}\n[main]\ndns=none\n", ours::MARK);
    for off in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots_at(dir.path());
        for folder in [
            "/run/NetworkManager/devices",
            "/run/systemd/resolve/netif",
            "/etc",
        ] {
            fs::create_dir_all(roots.root(folder)).unwrap();
        }
        symlink(
            "../run/systemd/resolve/stub-resolv.conf",
            roots.root("/etc/resolv.conf"),
        )
        .unwrap();
        let netif = roots.root("/run/systemd/resolve/netif/2");
        let (late, ours) = (netif.clone(), roots.root(NM));
        let commands = FakeCommands::new(move |line| {
            let late = late.clone();
            match line {
                "nmcli general reload" if !ours.exists() => {
                    std::thread::spawn(move || {
                        nix::poll::poll(&mut [], 120u8).unwrap();
                        fs::write(late, "SERVERS=192.0.2.9\n").unwrap();
                    });
                }
                "nmcli general reload" => fs::remove_file(late).unwrap_or_default(),
                _ if line.contains("reset-failed") => {}
                _ if !ours.exists() => assert!(late.exists(), "{line} before NetworkManager has announced"),
                _ => {}
            }
            Some(CommandOutput::default())
        });
        let there = [
            write("[Resolve]\nDNS=192.0.2.1\n", RESOLVED),
            reload(Service::Resolved),
            write(&disabled, NM),
            reload(Service::NetworkManager),
        ];
        fs::write(&netif, "SERVERS=192.0.2.9\n").unwrap();
        let done = apply(&roots, &commands, &NoFailPoints, &there, &mut || {
            if off { Ok(()) } else { Err("no answer".to_owned()) }
        });
        assert_eq!(done.is_ok(), off, "{done:?}");
        if off {
            let remove = |path: &str| DnsStep::RemoveFile {
                path: path.to_owned(),
            };
            let back = [
                remove(NM),
                reload(Service::NetworkManager),
                remove(RESOLVED),
                reload(Service::Resolved),
            ];
            apply(&roots, &commands, &NoFailPoints, &back, &mut || Ok(())).unwrap();
        }
        // One call checks whether systemd-resolved can reload.
        assert_eq!(commands.take().len(), 7);
        assert!(netif.exists() && !roots.root(RESOLVED).exists());
    }
}
