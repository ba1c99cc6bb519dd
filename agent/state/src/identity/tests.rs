use std::{
    fs,
    path::{Path, PathBuf},
};

use virtfleet_agent_host::{AGENT_GROUP, is_root};
use virtfleet_wire::report::Clock;

use super::{state::*, *};

/// A guest's tree among the fixtures: `rootfs`, `proc`, `sys`.
fn fixture(name: &str) -> Roots {
    let at = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/identity")
        .join(name);
    roots_at(&at)
}

fn roots_at(at: &Path) -> Roots {
    Roots {
        rootfs: at.join("rootfs"),
        procfs: at.join("proc"),
        sysfs: at.join("sys"),
        udev_data: at.join("rootfs/run/udev/data"),
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A copy of a fixture that a test may change.
fn changed(name: &str) -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    copy(fixture(name).rootfs.parent().unwrap(), dir.path());
    let roots = roots_at(dir.path());
    (dir, roots)
}

#[test]
fn all_fields_of_a_kubevirt_guest_are_read() {
    let observed = observe(&fixture("kubevirt"));
    insta::assert_snapshot!(
        "kubevirt",
        serde_json::to_string_pretty(&json(&observed)).unwrap()
    );
}

#[test]
fn an_empty_tree_reports_a_reason_for_every_missing_field() {
    let dir = tempfile::tempdir().unwrap();
    let observed = observe(&roots_at(dir.path()));
    insta::assert_snapshot!("empty", serde_json::to_string_pretty(&json(&observed)).unwrap());
    let important = observed
        .identity
        .missing
        .iter()
        .filter(|missing| is_important(missing));
    assert_eq!(important.count(), 5);
}

fn json(observed: &Observed) -> serde_json::Value {
    serde_json::json!({"bootId": observed.boot_id, "identity": observed.identity, "claims": observed.claims})
}

#[test]
fn config_drive_and_the_unit_file_are_the_fallbacks() {
    let (_dir, roots) = changed("kubevirt");
    fs::remove_dir_all(roots.root("/run/cloud-init")).unwrap();
    fs::remove_dir_all(roots.root("/var/lib/cloud/seed/nocloud")).unwrap();
    fs::remove_dir_all(roots.proc("812")).unwrap();
    let drive = roots.root("/var/lib/cloud/seed/config_drive/openstack/latest");
    fs::create_dir_all(&drive).unwrap();
    let text = r#"{"instance_id":"worker-0.cluster-a","hostname":"worker-0"}"#;
    fs::write(drive.join("meta_data.json"), text).unwrap();
    let observed = observe(&roots);
    assert_eq!(observed.identity.instance_id.unwrap().value, "worker-0.cluster-a");
    assert_eq!(observed.identity.cloud_platform.unwrap().value, "nocloud");
    let zone = &observed.claims.kubelet_labels["topology.kubernetes.io/zone"];
    assert_eq!(zone.value, "zone-of-the-unit");
    assert_eq!(
        zone.source,
        "/etc/systemd/system/kubelet.service.d/10-labels.conf"
    );
    assert_eq!(
        observed.claims.provider_id.unwrap().source,
        "/var/lib/kubelet/config.yaml"
    );
}

#[test]
fn binary_huge_and_blocking_files_are_missing_fields() {
    let (_dir, roots) = changed("kubevirt");
    let bad = |path: PathBuf, content: &[u8]| fs::write(path, content).unwrap();
    bad(roots.sys("class/dmi/id/product_uuid"), &[0xff, 0x00, 0x80]);
    bad(roots.root("/etc/machine-id"), b"uninitialized\n");
    bad(
        roots.root("/run/cloud-init/instance-data.json"),
        &vec![b' '; (1 << 20) + 1],
    );
    bad(roots.root("/var/lib/cloud/seed/nocloud/meta-data"), b"{{{{");
    bad(roots.proc("812/cmdline"), &vec![b'a'; 200_000]);
    let hostname = roots.proc("sys/kernel/hostname");
    fs::remove_file(&hostname).unwrap();
    nix::unistd::mkfifo(&hostname, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let identity = observe(&roots).identity;
    let reason = |field: &str| {
        let missing = identity.missing.iter().find(|missing| missing.field == field);
        missing.map_or_else(String::new, |missing| missing.reason.clone())
    };
    for (field, expected) in [
        (
            "smbiosUuid",
            "/sys/class/dmi/id/product_uuid: not UTF-8 text; state:/run/virtfleet/state/identity.json: no such file",
        ),
        ("machineId", "/etc/machine-id: no value"),
        ("hostname", "/proc/sys/kernel/hostname: not a regular file"),
    ] {
        assert_eq!(reason(field), expected);
    }
    let instance = reason("localHostname");
    assert!(
        instance.contains("instance-data.json: larger than 1048576 bytes"),
        "{instance}"
    );
    assert!(
        instance.contains("seed/nocloud/meta-data: line 2: "),
        "{instance}"
    );
}

#[test]
fn the_state_file_is_used_in_the_same_boot_only() {
    let (_dir, roots) = changed("kubevirt");
    if !is_root() {
        assert!(matches!(write_state(&roots), Err(WriteIdentityError::NotRoot)));
        return;
    }
    let result = write_state(&roots).unwrap();
    let text = result.to_string();
    assert!(
        text.starts_with(
            "wrote /run/virtfleet/state/identity.json, readable by root only: there is no group virtfleet;"
        ),
        "{text}"
    );
    let written = result.state;
    let uuid = &written.identity.smbios_uuid.as_ref().unwrap().value;
    assert!(
        text.contains("\n  smbiosUuid: found\n") && !text.contains(uuid.as_str()),
        "{text}"
    );
    assert_eq!(IDENTITY_STATE.read_any_boot(&roots).unwrap(), written);
    let set_back = Clock {
        boottime_ns: written.written_at_boottime_ns + 7_000_000,
        realtime_ns: 0,
        ..Clock::default()
    };
    let age = |clock: &Clock| written.age_ms(clock, &written.boot_id);
    assert_eq!(age(&set_back), 7, "the wall clock may be set back");
    let set_forward = Clock {
        realtime_ns: u64::MAX,
        ..set_back
    };
    assert_eq!(age(&set_forward), 7, "or forward");
    let later = Clock {
        realtime_ns: (written.written_at_unix_ms + 9) * 1_000_000,
        ..set_back
    };
    assert_eq!(written.age_ms(&later, "another boot"), 9);
    let mode =
        std::os::unix::fs::MetadataExt::mode(&fs::metadata(roots.root(IDENTITY_STATE.path)).unwrap()) & 0o777;
    assert_eq!(mode, 0o600, "the fixture has no group virtfleet");
    let etc = roots.root("/etc/group");
    fs::create_dir_all(etc.parent().unwrap()).unwrap();
    fs::write(etc, "root:x:0:\nvirtfleet:x:4242:\n").unwrap();
    let result = write_state(&roots).unwrap();
    assert!(
        result
            .to_string()
            .contains("readable by root and the group virtfleet\n"),
        "{result}"
    );
    let meta = fs::metadata(roots.root(IDENTITY_STATE.path)).unwrap();
    let (mode, group) = (
        std::os::unix::fs::MetadataExt::mode(&meta),
        std::os::unix::fs::MetadataExt::gid(&meta),
    );
    assert_eq!((mode & 0o777, group), (0o640, 4242));

    for name in ["product_uuid", "product_serial"] {
        fs::remove_file(roots.sys(format!("class/dmi/id/{name}"))).unwrap();
    }
    let uuid = observe(&roots).identity.smbios_uuid.unwrap();
    assert_eq!(uuid.source, "state:/run/virtfleet/state/identity.json");
    assert_eq!(
        Some(uuid.value),
        written.identity.smbios_uuid.map(|uuid| uuid.value)
    );

    fs::write(roots.proc("sys/kernel/random/boot_id"), "another\n").unwrap();
    let identity = observe(&roots).identity;
    assert_eq!(identity.smbios_uuid, None);
    let missing = identity
        .missing
        .iter()
        .find(|missing| missing.field == "smbiosUuid")
        .unwrap();
    assert!(
        missing.reason.ends_with("identity.json: written in another boot"),
        "{}",
        missing.reason
    );
}

#[test]
fn a_state_file_of_another_kind_or_version_is_refused() {
    let (_dir, roots) = changed("kubevirt");
    let path = roots.root(IDENTITY_STATE.path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for (text, expected) in [
        ("", "not a state file: "),
        ("{}", "not a state file: "),
        (
            r#"{"version":9,"writtenAtUnixMs":1,"identity":{}}"#,
            "format 9, expected 1",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let error = IDENTITY_STATE.read_any_boot(&roots).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn the_real_machine_is_observed() {
    let observed = observe(&Roots::default());
    let interfaces = observed.identity.interfaces.unwrap();
    assert!(interfaces.source.ends_with("getifaddrs"), "{}", interfaces.source);
    assert!(interfaces.value.iter().any(|interface| interface.name == "lo"));
    assert!(!observed.boot_id.is_empty());
}

#[test]
fn the_unit_runs_with_the_group_that_can_read_the_state_file() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let lines = |path: &str| -> Vec<String> {
        let text = fs::read_to_string(packaging.join(path)).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let unit = lines("systemd/virtfleet-agent.service");
    for wanted in [
        format!("User={AGENT_GROUP}"),
        format!("Group={AGENT_GROUP}"),
        "ExecStartPre=-+/usr/bin/virtfleet-agent state".to_owned(),
    ] {
        assert!(unit.contains(&wanted), "{wanted}");
    }
    // The group of a dynamic user is not in /etc/group; the clock's protection closes all devices.
    for harm in ["DynamicUser=", "ProtectClock=", "ProcSubset=", "ProtectProc="] {
        assert!(!unit.iter().any(|line| line.starts_with(harm)), "{harm}");
    }
    let made = format!("u {AGENT_GROUP} ");
    assert!(
        lines("sysusers.d/virtfleet.conf")
            .iter()
            .any(|line| line.starts_with(&made))
    );
}

#[test]
fn a_missing_root_filesystem_is_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    let roots = Roots {
        rootfs: nowhere.clone(),
        ..Roots::default()
    };
    let error = write_state(&roots).unwrap_err().to_string();
    assert!(
        error.starts_with("--path.rootfs: ") && error.contains("nowhere"),
        "{error}"
    );
    assert!(!nowhere.exists());
}
