//! The units, judged by systemd's own tools in a stand-in root: no error, no ordering cycle, little
//! exposure.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use virtfleet_tests::{process::Launch, skip};

const UNITS: &str = "usr/lib/systemd/system";
/// The lines of cloud-init 22.4's units on Debian that order them.
const CLOUD_INIT: [(&str, &str); 2] = [
    (
        "cloud-init-local.service",
        "DefaultDependencies=no\nWants=network-pre.target\nAfter=systemd-remount-fs.service\n\
         Before=NetworkManager.service network-pre.target shutdown.target sysinit.target\n\
         Conflicts=shutdown.target\nRequiresMountsFor=/var/lib/cloud\n",
    ),
    (
        "cloud-init.service",
        "DefaultDependencies=no\nWants=cloud-init-local.service\n\
         After=cloud-init-local.service systemd-networkd-wait-online.service networking.service\n\
         Before=network-online.target sshd.service sysinit.target shutdown.target systemd-user-sessions.service\n\
         Conflicts=shutdown.target\n",
    ),
];

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../packaging")
        .join(path)
}

fn our_units() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(shipped("systemd"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "drop-ins" {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// A root with this machine's units, ours, the drop-ins, and stand-ins for cloud-init, kubelet and
/// containerd, all of them wanted by the boot.
fn stand_in() -> Result<TempDir> {
    let root = TempDir::new()?;
    let at = |path: &str| root.path().join(path);
    let wants = format!("{UNITS}/multi-user.target.wants");
    for folder in ["usr/bin", "usr/lib/systemd"] {
        fs::create_dir_all(at(folder))?;
    }
    symlink("usr/lib", at("lib"))?;
    symlink("usr/bin", at("bin"))?;
    Launch::new("cp")
        .args(["-r", "/lib/systemd/system"])
        .arg(at(UNITS))
        .text(Duration::from_secs(30))?;
    fs::create_dir_all(at(&wants))?;
    for program in ["virtfleet-agent", "sh", "sleep", "ln", "true"] {
        let path = at(&format!("usr/bin/{program}"));
        fs::write(&path, "")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let want = |unit: &str| symlink(format!("../{unit}"), at(&format!("{wants}/{unit}")));
    for unit in our_units()? {
        fs::copy(
            shipped(&format!("systemd/{unit}")),
            at(&format!("{UNITS}/{unit}")),
        )?;
        want(&unit)?;
    }
    let service = "[Service]\nType=oneshot\nExecStart=/usr/bin/virtfleet-agent\n";
    for (unit, ordering) in CLOUD_INIT {
        fs::write(
            at(&format!("{UNITS}/{unit}")),
            format!("[Unit]\nDescription=stand-in\n{ordering}{service}"),
        )?;
        want(unit)?;
    }
    for unit in ["kubelet.service", "containerd.service"] {
        let file = format!("systemd/drop-ins/{unit}.d/10-virtfleet.conf");
        let drop_in = at(&format!("{UNITS}/{unit}.d/10-virtfleet.conf"));
        fs::create_dir_all(drop_in.parent().context("a folder")?)?;
        fs::copy(shipped(&file), drop_in)?;
        fs::write(
            at(&format!("{UNITS}/{unit}")),
            format!("[Unit]\nDescription=stand-in\n{service}"),
        )?;
        want(unit)?;
    }
    for unit in ["systemd-networkd.service", "systemd-networkd-wait-online.service"] {
        if at(&format!("{UNITS}/{unit}")).exists() {
            want(unit)?;
        }
    }
    Ok(root)
}

fn verify(root: &Path, units: &[String]) -> Result<(bool, String)> {
    let said: Output = Launch::new("systemd-analyze")
        .args(["verify", "--man=no", "--root"])
        .arg(root)
        .args(units)
        .output(Duration::from_mins(1))?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr)
    );
    // This machine's own units name programs that the stand-in root does not have.
    let ours: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("virtfleet") || line.contains("cycle"))
        .collect();
    Ok((said.status.success(), ours.join("\n")))
}

#[test]
fn tier3_systemd_finds_nothing_wrong_with_the_units() {
    let test = "tier3_systemd_finds_nothing_wrong_with_the_units";
    if skip::need(3, test, skip::program("systemd-analyze"))
        .unwrap()
        .is_none()
    {
        return;
    }
    let root = stand_in().unwrap();
    let mut units = our_units().unwrap();
    units.extend(["kubelet.service".to_owned(), "containerd.service".to_owned()]);
    let (good, said) = verify(root.path(), &units).unwrap();
    assert!(good && said.is_empty(), "{said}");

    let broken = root.path().join(UNITS).join("virtfleet-dns.service");
    let content = fs::read_to_string(&broken).unwrap();
    fs::write(
        &broken,
        content.replace("TimeoutStartSec=90s", "TimeoutStartSec=soon"),
    )
    .unwrap();
    let (_, said) = verify(root.path(), &units).unwrap();
    assert!(
        said.contains("TimeoutStartSec"),
        "a mistake goes unnoticed: {said}"
    );
}

#[test]
fn tier3_no_ordering_cycle_with_cloud_init_network_and_kubelet() {
    let test = "tier3_no_ordering_cycle_with_cloud_init_network_and_kubelet";
    if skip::need(3, test, skip::program("systemd-analyze"))
        .unwrap()
        .is_none()
    {
        return;
    }
    let root = stand_in().unwrap();
    let boot = ["multi-user.target".to_owned()];
    let (_, said) = verify(root.path(), &boot).unwrap();
    assert!(!said.contains("cycle"), "{said}");

    let provision = root.path().join(UNITS).join("virtfleet-provision.service");
    let content = fs::read_to_string(&provision).unwrap();
    fs::write(
        &provision,
        content.replace(
            "DefaultDependencies=no",
            "DefaultDependencies=no\nAfter=cloud-init.service\nBefore=cloud-init-local.service",
        ),
    )
    .unwrap();
    let (_, said) = verify(root.path(), &boot).unwrap();
    assert!(said.contains("ordering cycle"), "a cycle goes unnoticed: {said}");
}

#[test]
fn tier3_the_agents_unit_is_exposed_at_most_2_6() {
    let test = "tier3_the_agents_unit_is_exposed_at_most_2_6";
    if skip::need(3, test, skip::program("systemd-analyze"))
        .unwrap()
        .is_none()
    {
        return;
    }
    let said = Launch::new("systemd-analyze")
        .args(["security", "--offline=yes", "--no-pager"])
        .arg(shipped("systemd/virtfleet-agent.service"))
        .text(Duration::from_mins(1))
        .unwrap();
    let line = said.lines().find(|line| line.contains("exposure level")).unwrap();
    println!("{line}");
    let level: f64 = line
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no number in {line}"));
    assert!(
        level < 2.65,
        "docs/units.md names each option that is not used: {said}"
    );
}

/// What must not wait for the end of cloud-init's stages, because it is started, and waited for,
/// from within one.
#[test]
fn what_cloud_init_waits_for_does_not_wait_for_cloud_init() {
    for unit in ["virtfleet-provision.service", "virtfleet-dns.service"] {
        let content = fs::read_to_string(shipped(&format!("systemd/{unit}"))).unwrap();
        let lines: Vec<&str> = content.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(lines.contains(&"DefaultDependencies=no"), "{unit}");
        for after in lines.iter().filter(|line| line.starts_with("After=")) {
            for late in [
                "cloud-",
                "online",
                "network.target",
                "sysinit",
                "basic",
                "multi-user",
            ] {
                assert!(!after.contains(late), "{unit}: {after}");
            }
        }
        for needed in [
            "Conflicts=shutdown.target",
            "ConditionKernelCommandLine=!virtfleet.provision=off",
        ] {
            assert!(lines.contains(&needed), "{unit}: {needed} is missing");
        }
        assert!(
            lines.iter().any(|line| line.starts_with("TimeoutStartSec=")),
            "{unit}: what waits for it needs a limit"
        );
    }
}

/// No process of a service may listen on the agent's port before systemd does.
#[test]
fn the_port_is_held_before_any_service_starts_and_starts_none() {
    let socket = fs::read_to_string(shipped("systemd/virtfleet-agent.socket")).unwrap();
    let agent = fs::read_to_string(shipped("systemd/virtfleet-agent.service")).unwrap();
    let port = fs::read_to_string(shipped("systemd/virtfleet-port.service")).unwrap();
    let has = |text: &str, wanted: &str| {
        assert!(
            text.lines().any(|line| line == wanted),
            "{wanted} is not in\n{text}"
        );
    };
    let listens = format!("ListenStream={}", virtfleet_wire::settings::AGENT_PORT);
    for line in [
        "DefaultDependencies=no",
        "Before=sysinit.target",
        "WantedBy=sysinit.target",
        &listens,
        "BindIPv6Only=both",
        "TriggerLimitIntervalSec=0",
        "Service=virtfleet-port.service",
    ] {
        has(&socket, line);
    }
    has(&agent, "Sockets=virtfleet-agent.socket");
    for line in [
        "RemainAfterExit=yes",
        "BindsTo=virtfleet-agent.socket",
        "ExecStart=/bin/true",
    ] {
        has(&port, line);
    }
}

/// What it keeps open, whoever connects, and room.
#[test]
fn the_agent_may_open_what_it_keeps_open() {
    let content = fs::read_to_string(shipped("systemd/virtfleet-agent.service")).unwrap();
    assert!(
        content.lines().any(|line| line == "LimitNOFILE=4096"),
        "{content}"
    );
}

/// A folder that a user without rights can write to: root must not create, open or follow anything
/// in it.
#[test]
fn root_leaves_requests_only_as_links() {
    let rules = fs::read_to_string(shipped("udev/90-virtfleet.rules")).unwrap();
    let settings = fs::read_to_string(shipped("systemd/virtfleet-settings.service")).unwrap();
    let writes: Vec<&str> = rules
        .lines()
        .chain(settings.lines())
        .filter(|line| !line.starts_with('#') && line.contains("/run/virtfleet/ask/"))
        .collect();
    assert_eq!(writes.len(), 2, "{writes:?}");
    for line in writes {
        assert!(
            line.contains("/bin/ln -sfT /dev/null /run/virtfleet/ask/"),
            "{line}"
        );
    }
}

/// So that the queues of network interfaces follow.
#[test]
fn a_cpu_or_an_interface_that_comes_asks_for_a_reconcile() {
    let rules = fs::read_to_string(shipped("udev/90-virtfleet.rules")).unwrap();
    for (subsystem, actions) in [
        ("cpu", ["add", "remove", "online", "offline"].as_slice()),
        ("net", &["add", "remove"]),
    ] {
        let head = format!("SUBSYSTEM==\"{subsystem}\", ACTION==\"");
        let line = rules.lines().find(|line| line.starts_with(&head)).unwrap();
        let (words, rest) = line[head.len()..].split_once('"').unwrap();
        assert_eq!(words.split('|').collect::<Vec<_>>(), actions);
        assert_eq!(rest, ", GOTO=\"virtfleet_ask\"");
    }
}

/// udev runs the agent where it has found no filesystem, also before the first reconcile run.
#[test]
fn udev_gets_the_uuid_of_an_own_filesystem_from_the_agent() {
    let rules = fs::read_to_string(shipped("udev/90-virtfleet.rules")).unwrap();
    let at = |text: &str| rules.find(text).unwrap_or_else(|| panic!("{text}: {rules}"));
    let order = [
        "ENV{UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG}==\"1\", GOTO=\"virtfleet_known\"",
        "KERNEL==\"sr*|fd*|mtd*|mmcblk*boot*\", GOTO=\"virtfleet_known\"",
        "ENV{ID_FS_USAGE}==\"filesystem\", GOTO=\"virtfleet_known\"",
        "TEST!=\"/var/lib/virtfleet/journal\", GOTO=\"virtfleet_known\"",
        "IMPORT{program}=\"/usr/bin/virtfleet-agent disks udev $devnode\"",
        "SYMLINK+=\"disk/by-uuid/$env{ID_FS_UUID_ENC}\"",
        "LABEL=\"virtfleet_known\"",
        "TEST!=\"/run/virtfleet/ask\"",
    ]
    .map(at);
    assert!(order.is_sorted(), "{rules}");
}

#[test]
fn tier3_udev_knows_the_rules() {
    let test = "tier3_udev_knows_the_rules";
    if skip::need(3, test, skip::program("udevadm")).unwrap().is_none() {
        return;
    }
    let help = Launch::new("udevadm")
        .arg("--help")
        .output(Duration::from_secs(30))
        .unwrap();
    let rules = shipped("udev/90-virtfleet.rules");
    // `verify` came with systemd 254. An older one says what it cannot read when it tests the rules
    // on a device.
    if String::from_utf8_lossy(&help.stdout).contains("verify") {
        Launch::new("udevadm")
            .arg("verify")
            .arg(&rules)
            .text(Duration::from_secs(30))
            .unwrap();
        return;
    }
    let content = fs::read_to_string(&rules).unwrap();
    for line in content
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        for goto in line.split("GOTO=\"").skip(1) {
            let label = goto.split('"').next().unwrap();
            assert!(content.contains(&format!("LABEL=\"{label}\"")), "{line}");
        }
    }
}
