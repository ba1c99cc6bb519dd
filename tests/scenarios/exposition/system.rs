//! Collectors of the system as a whole: what a guest lacks, and sysctls.

use std::fs;

use crate::exposition::{
    processor::{of, page_with},
    world::*,
};

#[test]
fn what_a_guest_lacks_is_no_data_or_nothing_to_say() {
    let page = page_with(&fixture("minimal"), |settings| {
        settings.sysctl.include.clear();
        settings.sysctl.include_info.clear();
        settings.textfile.directories.clear();
    });
    let success = successes(&page);
    for (name, expected) in [
        ("schedstat", false),
        ("kernel_hung", false),
        ("entropy", false),
        ("filefd", false),
        ("slabinfo", false),
        ("ksmd", false),
        // node_exporter says success here, too.
        ("selinux", true),
        ("meminfo_numa", true),
        ("cpu_vulnerabilities", true),
        ("sysctl", true),
        ("textfile", true),
    ] {
        assert_eq!(success[name], expected, "{name}");
    }
    assert_eq!(of(&page, "node_selinux_enabled"), ["node_selinux_enabled 0"]);
    assert!(of(&page, "node_selinux_current_mode").is_empty());
}

#[test]
fn sysctls_are_numbers_by_index_or_name_and_texts() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("kubevirt"), dir.path());
    let page = page_with(dir.path(), |settings| {
        settings.sysctl.include = vec!["net.ipv4.tcp_rmem".to_owned()];
        settings.sysctl.include_info = vec!["kernel.pid_max".to_owned(), "kernel.pid_max".to_owned()];
    });
    assert_eq!(
        of(&page, "node_sysctl_net_ipv4_tcp_rmem"),
        [
            "node_sysctl_net_ipv4_tcp_rmem{index=\"0\"} 4096",
            "node_sysctl_net_ipv4_tcp_rmem{index=\"1\"} 131072",
            "node_sysctl_net_ipv4_tcp_rmem{index=\"2\"} 6291456",
        ]
    );
    assert_eq!(
        of(&page, "node_sysctl_info"),
        ["node_sysctl_info{name=\"kernel.pid_max\",value=\"4194304\",index=\"0\"} 1"]
    );
    for include in ["kernel.none", "net.ipv4.tcp_rmem:one,two", "kernel..etc"] {
        let page = page_with(dir.path(), |settings| {
            settings.sysctl.include = vec![include.to_owned()];
        });
        assert!(!successes(&page)["sysctl"], "{include}");
    }
    fs::write(dir.path().join("proc/sys/kernel/pid_max"), "many\n").unwrap();
    assert!(!successes(&page_with(dir.path(), |_| {}))["sysctl"]);
}

#[test]
fn a_value_that_lost_its_unit_is_no_value() {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture("kubevirt"), dir.path());
    let node = dir.path().join("sys/devices/system/node/node0/meminfo");
    fs::write(&node, "Node 0 MemTotal:        8155268\n").unwrap();
    let page = page_with(dir.path(), |_| {});
    assert!(!successes(&page)["meminfo_numa"]);
    assert!(!page.contains("node_memory_numa_MemTotal"));
}
