use std::{fs, os::unix::fs::symlink, path::Path};

use super::*;

use virtfleet_agent_state::settings;

/// A small machine: one disk and one loop device, one NIC and one bridge.
fn machine() -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (path, text) in [
        (
            "rootfs/etc/os-release",
            "ID=debian\nVERSION_ID=\"13\"\nPRETTY_NAME=\"Debian 13\"\n",
        ),
        ("proc/sys/kernel/osrelease", "6.12.0\n"),
        ("proc/sys/kernel/arch", "x86_64\n"),
        ("proc/meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\n"),
        ("proc/interrupts", "           CPU0       CPU1\n"),
        ("proc/stat", "cpu 1 2\nbtime 1700000000\n"),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("sys/devices/system/cpu/present", "0-1\n"),
        ("sys/devices/system/cpu/possible", "0-3\n"),
        (
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu vmx\n\n",
        ),
        ("sys/class/tpm/tpm0/tpm_version_major", "2\n"),
        ("sys/kernel/kexec_crash_size", "201326592\n"),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
        ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0\n"),
        ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
        ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1\n"),
        ("sys/class/dmi/id/sys_vendor", "KubeVirt\n"),
        ("sys/block/vda/size", "20971520\n"),
        ("sys/block/vda/serial", "root\n"),
        ("sys/block/vda/ro", "0\n"),
        ("sys/block/vda/removable", "0\n"),
        ("sys/block/vda/queue/rotational", "1\n"),
        ("sys/block/loop0/size", "8\n"),
        ("sys/block/zram0/size", "8\n"),
        ("sys/bus/virtio/drivers/virtio_net/x", ""),
        ("sys/class/net/eth0/address", "52:54:00:12:34:56\n"),
        ("sys/class/net/eth0/flags", "0x1003\n"),
        ("sys/class/net/eth0/mtu", "1450\n"),
        ("sys/class/net/eth0/speed", "-1\n"),
        ("sys/class/net/eth0/operstate", "up\n"),
        ("sys/class/net/eth0/device/vendor", "0x1af4\n"),
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n"),
        ("sys/class/net/eth0/queues/tx-0/xps_cpus", "0\n"),
        ("sys/class/net/eth0/queues/tx-1/xps_cpus", "0\n"),
        ("sys/class/net/cni0/address", "02:00:00:00:00:01\n"),
    ] {
        write(path, text);
    }
    let driver = dir.path().join("sys/class/net/eth0/device/driver");
    symlink("../../../../bus/virtio/drivers/virtio_net", driver).unwrap();
    let at = |name: &str| dir.path().join(name);
    let roots = Roots {
        rootfs: at("rootfs"),
        procfs: at("proc"),
        sysfs: at("sys"),
        udev_data: at("rootfs/run/udev/data"),
    };
    (dir, roots)
}

fn at(seconds: u64) -> Clock {
    Clock {
        boottime_ns: seconds * 1_000_000_000,
        monotonic_ns: 1,
        realtime_ns: seconds * 1_000_000_000,
    }
}

fn write(roots: &Roots, path: &str, text: &str) {
    let path = roots.root(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn sections_describe_the_machine() {
    let (_dir, roots) = machine();
    write(
        &roots,
        "/etc/virtfleet/agent.yaml",
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nlgo: {}\n",
    );
    let settings = settings::load(&roots, None);
    let report = Reporter::new(roots.clone(), "1.2.3", &settings)
        .report_at(at(1_700_000_100), &ClockWatch::new(&roots));
    insta::assert_snapshot!(
        "sections",
        serde_json::to_string_pretty(&report.sections).unwrap()
    );
    let back = GuestReport::from_json(&serde_json::to_vec(&report).unwrap()).unwrap();
    assert_eq!(back, report);
}

#[test]
fn findings_keep_the_time_of_their_first_observation() {
    let (_dir, roots) = machine();
    write(&roots, "/etc/virtfleet/agent.yaml", "kind: [\n");
    let settings = settings::load(&roots, None);
    let mut reporter = Reporter::new(roots.clone(), "1.2.3", &settings);
    let watch = ClockWatch::new(&roots);
    let first = reporter.report_at(at(1_700_000_000), &watch);
    write(&roots, "/etc/machine-id", "4a1c0f5be1f94b3f8d8f3a3f5a0c9e11\n");
    let second = reporter.report_at(at(1_700_000_060), &watch);
    fs::remove_file(roots.root("/etc/machine-id")).unwrap();
    let third = reporter.report_at(at(1_700_000_120), &watch);
    assert_eq!([first.seq, second.seq, third.seq], [1, 2, 3]);

    let since = |report: &GuestReport, name: &str| {
        let finding = report
            .findings
            .iter()
            .find(|finding| finding.subject.name == name);
        finding.map(|finding| finding.since.clone())
    };
    let start = Some("2023-11-14T22:13:20Z".to_owned());
    for report in [&first, &second, &third] {
        assert_eq!(since(report, "/etc/virtfleet/agent.yaml"), start);
        assert_eq!(since(report, "smbiosUuid"), start);
    }
    assert_eq!(since(&first, "machineId"), start);
    assert_eq!(since(&second, "machineId"), None);
    assert_eq!(
        since(&third, "machineId"),
        Some("2023-11-14T22:15:20Z".to_owned())
    );
    for finding in &third.findings {
        assert!(!finding.remedy.is_empty(), "{finding:?}");
    }
}

#[test]
fn many_problems_are_few_findings_and_a_count() {
    let problems: Vec<_> = (0..60)
        .map(|line| virtfleet_wire::layered::Problem::of_file("f", line, "wrong"))
        .collect();
    let found = findings::of_settings(&problems);
    assert_eq!(found.len(), 51);
    assert_eq!(
        found[50].message,
        "10 more problems with the settings are not listed"
    );
}

#[test]
fn keys_of_earlier_versions_are_information() {
    let origin = virtfleet_wire::layered::Origin::Default;
    let key = virtfleet_wire::layered::Problem::at(&origin, "metrics.rapl", "ignored");
    let found: Vec<_> = findings::of_ignored(&[key]).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].severity, virtfleet_wire::finding::Severity::Info);
    assert_eq!(found[0].reason, "KeyRemoved");
    assert!(found[0].subject.name.ends_with("#metrics.rapl"), "{found:?}");
}

#[test]
fn this_machine_has_a_report() {
    let settings = settings::load(&Roots::default(), Some(Path::new("/nowhere")));
    let report =
        Reporter::new(Roots::default(), "1.2.3", &settings).report(&ClockWatch::new(&Roots::default()));
    let clock = report.clock;
    assert!(clock.realtime_ns > 0, "{clock:?}");
    assert!(
        clock.monotonic_ns > 0 && clock.boottime_ns >= clock.monotonic_ns,
        "{clock:?}"
    );
    assert_eq!(report.sections["system"].status, SectionStatus::Ok);
    assert!(report.to_json_within_limit().is_ok());
}

const BOOT: &str = "11111111-2222-3333-4444-555555555555";

fn record(roots: &Roots, json: &str) {
    let path = roots.proc("sys/kernel/random/boot_id");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, BOOT).unwrap();
    write(roots, "/run/virtfleet/state/guest.json", json);
}

#[test]
fn runs_have_their_age_and_failed_steps_are_findings() {
    let (_dir, roots) = machine();
    let settings = settings::load(&roots, None);
    let mut reporter = Reporter::new(roots.clone(), "1.2.3", &settings);
    let watch = ClockWatch::new(&roots);
    let text = json!({"v": 1, "bootId": BOOT, "stages": {
        "provision": {"outcome": "failed", "endedAtBoottimeNs": 60_000_000_000u64, "steps": [
            {"name": "identity", "outcome": "failed", "message": "disk full"}]},
        "reconcile": {"outcome": "failed", "triggers": ["device"], "steps": [
            {"name": "settings", "outcome": "failed", "message": "m", "problems": [
                {"file": "/etc/virtfleet/agent.yaml", "line": 4, "path": "server.x", "message": "f:4: server.x: no"}]}]}}});
    record(&roots, &text.to_string());
    let report = reporter.report_at(at(100), &watch);
    let section = &report.sections["provision"];
    assert_eq!(section.status, SectionStatus::Partial);
    assert_eq!(
        (&section.items[0]["ageMs"], &section.items[0]["outcome"]),
        (&json!(40_000), &json!("failed"))
    );
    assert_eq!(section.items[1]["reason"], "has not run in this boot");
    assert_eq!(section.items[2]["triggers"], json!(["device"]));
    let find = |id: &str| report.findings.iter().find(|finding| finding.id == id).unwrap();
    assert_eq!(find("pass-step-failed").subject.name, "provision/identity");
    let finding = find("settings-on-disk-not-applied");
    assert_eq!(finding.subject.name, "/etc/virtfleet/agent.yaml#server.x");
    assert_eq!(finding.evidence["line"], "4");
    assert!(
        find("pass-step-failed")
            .remedy
            .contains("virtfleet-provision.service")
    );

    let status = |reporter: &mut Reporter| reporter.report_at(at(100), &watch).sections["provision"].clone();
    record(&roots, r#"{"v":1,"bootId":"another"}"#);
    let section = status(&mut reporter);
    assert_eq!(section.status, SectionStatus::Unknown);
    assert_eq!(
        section.items[0]["reason"],
        "/run/virtfleet/state/guest.json: written in another boot"
    );
    record(&roots, "{");
    assert_eq!(status(&mut reporter).status, SectionStatus::Failed);
}

#[test]
fn dns_that_is_not_managed_is_off_without_a_run() {
    let (_dir, roots) = machine();
    let mut settings = settings::load(&roots, None);
    let watch = ClockWatch::new(&roots);
    for (manage, status, state) in [
        (DnsManage::Off, SectionStatus::Ok, "off"),
        (DnsManage::ReportOnly, SectionStatus::Unknown, "unknown"),
        (DnsManage::Auto, SectionStatus::Unknown, "unknown"),
    ] {
        settings.config.dns.manage = manage;
        let section = |text: Option<&str>| {
            if let Some(text) = text {
                write(&roots, "/run/virtfleet/state/dns.json", text);
            }
            let report = Reporter::new(roots.clone(), "1.2.3", &settings).report_at(at(100), &watch);
            report.sections["dns"].clone()
        };
        let found = section(None);
        assert_eq!((found.status, &found.items[0]["state"]), (status, &json!(state)));
        // A file that cannot be used is reported in any case.
        assert_eq!(section(Some("{")).status, SectionStatus::Failed);
        fs::remove_file(roots.root("/run/virtfleet/state/dns.json")).unwrap();
    }
}

#[test]
fn a_clock_step_moves_dates_unless_it_corrects_a_pause() {
    let (_dir, roots) = machine();
    let settings = settings::load(&roots, None);
    let reporter = || Reporter::new(roots.clone(), "1.2.3", &settings);
    let clock = |boottime: u64, realtime: u64| Clock {
        boottime_ns: boottime * 1_000_000_000,
        monotonic_ns: 0,
        realtime_ns: realtime * 1_000_000_000,
    };
    let since = |reporter: &mut Reporter, clock: Clock, paused: u64| {
        let mut findings =
            findings::of_settings(&[virtfleet_wire::layered::Problem::of_file("f", 1, "wrong")]);
        reporter.date(&mut findings, &clock, paused * 1_000_000_000);
        findings[0].since.clone()
    };
    // Booted in 1970, corrected an hour later.
    let mut wrong = reporter();
    assert_eq!(since(&mut wrong, clock(10, 10), 0), "1970-01-01T00:00:10Z");
    assert_eq!(
        since(&mut wrong, clock(3610, 1_700_003_600), 0),
        "2023-11-14T22:13:20Z"
    );
    assert_eq!(
        since(&mut wrong, clock(3620, 1_700_003_610), 0),
        "2023-11-14T22:13:20Z"
    );
    // Paused for an hour; the clock is behind for a while and is then corrected.
    let mut paused = reporter();
    for (clock, pause) in [
        (clock(10, 1_700_000_000), 0),
        (clock(20, 1_700_000_010), 3600),
        (clock(30, 1_700_003_620), 3600),
    ] {
        assert_eq!(
            since(&mut paused, clock, pause),
            "2023-11-14T22:13:20Z",
            "{clock:?}"
        );
    }
}
