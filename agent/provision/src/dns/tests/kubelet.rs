//! What kubelet reads, and how it is told.

use super::*;

#[test]
fn the_file_that_kubelet_reads_is_there_in_every_mode_and_stays_when_the_rest_is_put_back() {
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
fn kubelet_is_told_by_its_drop_in_and_a_finding_stays_until_it_starts_anew() {
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
    // An hour from now it was started anew.
    started(virtfleet_agent_host::clock().boottime_ns / 10_000_000 + 360_000);
    assert!(!waits(&guest.pass(all, by_stage())));
    // `off` takes it away, and what kubelet reads stays until it starts anew.
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
fn settings_that_are_wrong_leave_what_pods_read() {
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
    // One that is missing is as it was verified last.
    fs::remove_file(guest.roots.root(file)).unwrap();
    guest.pass(all, by_stage());
    assert_eq!(text(), before);
}

/// Its folder of drop-ins cannot be written to: a file is in its place.
#[test]
fn what_is_in_the_way_of_kubelets_drop_in_is_not_in_the_way_of_the_nodes_dns() {
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
    // It is tried again, and nothing else is.
    let again = guest.pass(all, by_stage());
    assert!(!again.changed && again.state.error.is_some(), "{:?}", again.state);
}
