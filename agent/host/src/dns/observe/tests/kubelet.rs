//! kubelet's drop-ins, flags and start time.

use super::*;

const FOLDER: &str = "--config-dir=/etc/kubernetes/kubelet.conf.d/";

#[test]
fn the_last_drop_in_has_precedence_and_others_are_known_without_the_agents() {
    let folder = "/etc/kubernetes/kubelet.conf.d";
    let tree = Tree::new()
        .file(
            "/var/lib/kubelet/config.yaml",
            "resolvConf: /run/systemd/resolve/stub-resolv.conf\nclusterDNS: [10.96.0.10]\n",
        )
        .file(
            "/etc/systemd/system/kubelet.service",
            &format!("[Service]\nExecStart=/usr/bin/kubelet {FOLDER}\n"),
        )
        .file(&format!("{folder}/10-a.conf"), "resolvConf: /etc/a.conf\n")
        .file(&format!("{folder}/20-b.yaml"), "resolvConf: /etc/b.conf\n")
        .file("/etc/a.conf", "nameserver 127.0.0.1\n");
    let kubelet = tree.observe().kubelet.unwrap();
    assert_eq!(kubelet.resolv_conf.as_deref(), Some("/etc/a.conf"));
    assert_eq!(
        (kubelet.others.as_deref(), kubelet.text.as_deref()),
        (Some("/etc/a.conf"), Some("nameserver 127.0.0.1\n"))
    );
    assert_eq!(kubelet.config.as_deref(), Some("/var/lib/kubelet/config.yaml"));
    assert_eq!(kubelet.cluster_dns.len(), 1);
    assert_eq!(kubelet.started_ns, None);
    let ours = format!("{folder}/90-virtfleet.conf");
    let seen = tree
        .file(
            &ours,
            "# Written by virtfleet-agent\nresolvConf: /run/systemd/resolve/resolv.conf\n",
        )
        .observe();
    let kubelet = seen.kubelet.unwrap();
    assert_eq!(
        kubelet.resolv_conf.as_deref(),
        Some("/run/systemd/resolve/resolv.conf")
    );
    assert_eq!(kubelet.others.as_deref(), Some("/etc/a.conf"));
    assert!(seen.files.contains_key(&ours));
    // kubelet is gone, but the agent's file is not.
    let left = Tree::new()
        .file(&ours, "# Written by virtfleet-agent\n")
        .observe();
    assert!(left.kubelet.is_none() && left.files.contains_key(&ours));
}

#[test]
fn the_file_of_a_flag_and_the_start_time_are_found() {
    let tree = Tree::new()
        .file(
            "/etc/default/kubelet",
            "KUBELET_EXTRA_ARGS=--resolv-conf=/etc/x.conf\n",
        )
        .process(&["/usr/bin/kubelet", "--resolv-conf=/etc/x.conf", FOLDER]);
    let stat = "101 (kube let) x) S 1 101 101 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 9 0 250 1 1\n";
    write(&tree.roots.proc("101/stat"), stat);
    let kubelet = tree.observe().kubelet.unwrap();
    assert!(kubelet.by_flag);
    assert_eq!(kubelet.flag_in.as_deref(), Some("/etc/default/kubelet"));
    assert_eq!(kubelet.text, None);
    // 250 ticks of 10 ms.
    assert_eq!(kubelet.started_ns, Some(2_500_000_000));
}

#[test]
fn a_link_local_nameserver_has_its_link_as_zone() {
    let state =
        "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/10-eth0.network\nDNS=fe80::1 10.0.0.1\n";
    let seen = Tree::new().file("/run/systemd/netif/links/2", state).observe();
    assert_eq!(
        seen.links[0].told.shown_nameservers(),
        ["fe80::1%eth0", "10.0.0.1"]
    );
}

#[test]
fn kubelets_flags_override_its_file() {
    let seen = |tree: &Tree| tree.observe().kubelet;
    let tree = Tree::new();
    assert_eq!(seen(&tree), None);
    let tree = tree.file(
        "/var/lib/kubelet/config.yaml",
        "kind: KubeletConfiguration\nclusterDNS: [169.254.20.10, \"fd00::a\"]\nclusterDomain: cluster.local\nresolvConf: /run/systemd/resolve/resolv.conf\n",
    );
    let kubelet = seen(&tree).unwrap();
    assert_eq!(kubelet.path, "/var/lib/kubelet/config.yaml");
    assert_eq!(kubelet.cluster_dns, addresses(&["169.254.20.10", "fd00::a"]));
    assert_eq!(
        kubelet.resolv_conf.as_deref(),
        Some("/run/systemd/resolve/resolv.conf")
    );
    // The unit is read while kubelet does not run.
    let tree = tree.file(
        "/etc/systemd/system/kubelet.service.d/10-extra.conf",
        "[Service]\n# --resolv-conf=/wrong\nEnvironment=\"KUBELET_EXTRA_ARGS=--resolv-conf=/etc/kubelet-resolv.conf --v 2\"\n",
    );
    let kubelet = seen(&tree).unwrap();
    assert_eq!(kubelet.resolv_conf.as_deref(), Some("/etc/kubelet-resolv.conf"));
    assert_eq!(
        kubelet.path,
        "/var/lib/kubelet/config.yaml and kubelet's command line"
    );
    let tree = tree
        .file("/srv/kubelet.json", r#"{"clusterDNS":["10.240.16.10"]}"#)
        .process(&[
            "/usr/bin/kubelet",
            "--config",
            "/srv/kubelet.json",
            "--cluster-domain=x.example",
        ]);
    let kubelet = seen(&tree).unwrap();
    assert_eq!(kubelet.path, "/srv/kubelet.json and kubelet's command line");
    assert_eq!(kubelet.cluster_dns, addresses(&["10.240.16.10"]));
    assert_eq!(
        (kubelet.cluster_domain.as_deref(), kubelet.resolv_conf),
        (Some("x.example"), None)
    );
}

#[test]
fn flags_are_found_in_the_environment_files_of_the_unit() {
    let tree = Tree::new()
        .file(
            "/etc/systemd/system/kubelet.service",
            "[Service]\nEnvironmentFile=-/etc/kubernetes/kubelet.env\nExecStart=/usr/bin/kubelet $ARGS\n",
        )
        .file(
            "/etc/kubernetes/kubelet.env",
            "ARGS=\"--config-dir=/etc/kubernetes/more.d --resolv-conf=/etc/x.conf\"\n",
        );
    let kubelet = tree.observe().kubelet.unwrap();
    assert_eq!(kubelet.config_dir.as_deref(), Some("/etc/kubernetes/more.d"));
    assert_eq!(kubelet.flag_in.as_deref(), Some("/etc/kubernetes/kubelet.env"));
}
