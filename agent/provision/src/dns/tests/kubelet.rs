//! The file that kubelet reads, and the drop-in that points kubelet to it.

use super::*;

#[test]
fn kubelets_file_exists_in_every_mode_and_stays_after_a_rollback() {
    let file = virtfleet_agent_core::dns::ours::FOR_KUBELET;
    let nobody: fn(&str, &str) -> bool = |_, _| false;
    let until_written: fn(&str, &str) -> bool = |who, conf| who != GOOD || !conf.contains(GOOD);
    for (settings, alive, name) in [
        (REPORT, all as fn(&str, &str) -> bool, GOOD),
        ("dns: {manage: off}\n", all, CACHE),
        ("dns: {manage: nonsense}\n", all, CACHE),
        (AUTO, nobody, CACHE),
        (AUTO, until_written, GOOD),
        (AUTO, all, GOOD),
    ] {
        let guest = Guest::new(settings);
        guest.write(
            "root/var/lib/kubelet/config.yaml",
            &format!("kind: KubeletConfiguration\nresolvConf: {file}\n"),
        );
        let passed = guest.pass(alive, by_stage());
        let text = fs::read_to_string(guest.roots.root(file)).unwrap();
        assert!(
            text.contains(&format!("nameserver {name}\n")),
            "{settings}: {text}"
        );
        assert!(
            passed.state.done.iter().any(|one| one.contains(file)),
            "{settings}"
        );
        assert!(
            !passed
                .state
                .findings
                .iter()
                .any(|one| one.id == "dns-kubelet-file")
        );
        if settings != AUTO {
            assert_eq!(guest.resolv_conf(), format!("nameserver {CACHE}\n"), "{settings}");
        }
        assert!(!guest.pass(alive, by_stage()).changed, "{settings}");
        assert_eq!(fs::read_to_string(guest.roots.root(file)).unwrap(), text);
    }
}

#[test]
fn kubelets_drop_in_is_written_and_a_finding_stays_until_kubelet_restarts() {
    let drop_in = "root/etc/kubernetes/kubelet.conf.d/90-virtfleet.conf";
    let guest = Guest::new(AUTO);
    guest.write("root/etc/resolv.conf", "nameserver 192.0.2.1\n");
    guest.write("root/var/lib/kubelet/config.yaml", "resolvConf: /etc/gone.conf\n");
    let unit = "root/etc/systemd/system/kubelet.service";
    guest.write(
        unit,
        "ExecStart=/usr/bin/kubelet --config-dir=/etc/kubernetes/kubelet.conf.d\n",
    );
    guest.write("proc/77/comm", "kubelet\n");
    let args = "/usr/bin/kubelet\0--config-dir=/etc/kubernetes/kubelet.conf.d\0";
    guest.write("proc/77/cmdline", args);
    let started = |ticks: u64| {
        let fields = "S 1 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 9 0";
        guest.write("proc/77/stat", &format!("77 (kubelet) {fields} {ticks} 1 1\n"));
    };
    started(1);
    let waits = |passed: &RunResult<Plan, DnsState>| {
        passed
            .state
            .findings
            .iter()
            .any(|one| one.id == "dns-kubelet-restart")
    };
    let passed = guest.pass(all, by_stage());
    assert!(passed.changed && waits(&passed), "{:?}", passed.state);
    let text = fs::read_to_string(guest.dir.path().join(drop_in)).unwrap();
    assert!(
        text.contains("\nresolvConf: /var/lib/virtfleet/resolv.conf\n"),
        "{text}"
    );
    let again = guest.pass(all, by_stage());
    assert!(!again.changed && waits(&again));
    // Kubelet was restarted an hour later.
    started(virtfleet_agent_host::clock().boottime_ns / 10_000_000 + 360_000);
    assert!(!waits(&guest.pass(all, by_stage())));
    // `off` removes the drop-in. The file that kubelet reads stays until kubelet restarts.
    guest.settings("dns: {manage: off}\n");
    let off = guest.pass(all, by_stage());
    assert!(
        off.changed && !guest.dir.path().join(drop_in).exists(),
        "{:?}",
        off.state
    );
    let ours = virtfleet_agent_core::dns::ours::FOR_KUBELET;
    guest.pass(all, by_stage());
    assert!(guest.roots.root(ours).exists());
    fs::remove_dir_all(guest.dir.path().join("proc/77")).unwrap();
    guest.pass(all, by_stage());
    assert!(!guest.roots.root(ours).exists());
}

#[test]
fn invalid_settings_keep_the_file_that_pods_read() {
    let file = virtfleet_agent_core::dns::ours::FOR_KUBELET;
    let guest = Guest::new(AUTO);
    guest.write("root/etc/resolv.conf", "nameserver 192.0.2.77\n");
    guest.write(
        "root/var/lib/kubelet/config.yaml",
        &format!("kind: KubeletConfiguration\nresolvConf: {file}\n"),
    );
    guest.pass(all, by_stage());
    let text = || fs::read_to_string(guest.roots.root(file)).unwrap();
    let before = text();
    assert!(before.contains("nameserver 192.0.2.1\n"), "{before}");
    guest.settings("dns: {manage: nonsense}\n");
    guest.pass(all, by_stage());
    assert_eq!(text(), before);
    // A missing file is written with the content that was last verified.
    fs::remove_file(guest.roots.root(file)).unwrap();
    guest.pass(all, by_stage());
    assert_eq!(text(), before);
}

/// The drop-in directory cannot be written: a file is at its path.
#[test]
fn a_failed_kubelet_drop_in_does_not_stop_the_nodes_dns() {
    let guest = Guest::new(AUTO);
    guest.write("root/var/lib/kubelet/config.yaml", "resolvConf: /etc/gone.conf\n");
    guest.write("root/etc/kubernetes/kubelet.conf.d", "");
    let unit = "root/etc/systemd/system/kubelet.service";
    guest.write(
        unit,
        "ExecStart=/usr/bin/kubelet --config-dir=/etc/kubernetes/kubelet.conf.d\n",
    );
    let passed = guest.pass(all, by_stage());
    assert_eq!(passed.state.standing, DnsStatus::Verified, "{:?}", passed.state);
    assert!(guest.resolv_conf().contains(&format!("nameserver {GOOD}\n")));
    assert_eq!((passed.state.changes, passed.state.rollbacks), (1, 0));
    let error = passed.state.error.unwrap();
    assert!(error.contains("90-virtfleet.conf"), "{error}");
    // The drop-in is tried again, and nothing else is.
    let again = guest.pass(all, by_stage());
    assert!(!again.changed && again.state.error.is_some(), "{:?}", again.state);
}
