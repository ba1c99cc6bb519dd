//! Where the binary comes from, what is done when it is not right, and whose word counts.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    time::Duration,
};

use virtfleet_tests::{ports, process::Launch, skip};

use super::guest::{COMMAND_TIMEOUT, Guest, shipped};

const TIER: u8 = 2;
const AGENT: &str = "root/opt/virtfleet/bin/virtfleet-agent";
const UNIT: &str = "root/etc/systemd/system/virtfleet-agent.service";

/// Root, because the agent installs only then; and that `name` is there.
pub(crate) fn needs(test: &str, programs: &[&str]) -> bool {
    let there = || {
        skip::root()?;
        for program in programs {
            Launch::new("which")
                .arg(program)
                .text(Duration::from_secs(10))
                .map_err(|_| anyhow::anyhow!("there is no {program}"))?;
        }
        Ok(())
    };
    skip::need(TIER, test, there()).unwrap().is_some()
}

#[test]
fn tier2_everything_is_in_place_after_one_boot_and_the_next_one_changes_nothing() {
    let test = "tier2_everything_is_in_place_after_one_boot_and_the_next_one_changes_nothing";
    if !needs(test, &["dash", "bash"]) {
        return;
    }
    for shell in ["dash", "bash"] {
        let guest = Guest::new().shell(shell);
        guest.deliver_the_source("files:\n- { path: /etc/motd.d/x, mode: \"0600\", content: \"é\" }\n");
        let ran = guest.boot();
        assert_eq!(ran.code, Some(0), "{}", ran.said);
        assert!(guest.has_agent(), "{}", ran.said);
        assert_eq!(guest.text("root/etc/motd.d/x"), "é");
        assert!(
            guest
                .text(UNIT)
                .contains("ExecStart=/opt/virtfleet/bin/virtfleet-agent run")
        );
        // The files in the script may be secret.
        for (path, mode) in [
            ("root/run/virtfleet-deliver", 0o600),
            ("root/var/lib/virtfleet/delivery/deliver", 0o700),
        ] {
            let found = fs::metadata(guest.at(path)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{path}");
        }
        let settings = guest.text("root/etc/virtfleet/agent.d/50-delivery.yaml");
        assert!(settings.contains("level: debug"), "{settings}");
        assert_eq!(
            guest
                .calls()
                .iter()
                .filter(|call| call.contains("daemon-reload"))
                .count(),
            1
        );

        let before = guest.state();
        let mut changed: Vec<_> = before
            .keys()
            .filter(|name| name.contains(".virtfleet-"))
            .collect();
        assert!(changed.is_empty(), "left behind: {changed:?}");
        fs::remove_file(guest.at("calls")).unwrap();
        let folder = guest.at("root/etc/virtfleet/agent.d");
        let written = || fs::metadata(&folder).unwrap().modified().unwrap();
        let last_written = written();
        let ran = guest.boot();
        assert_eq!(ran.code, Some(0), "{}", ran.said);
        assert_eq!(written(), last_written, "the agent watches this folder");
        let after = guest.state();
        changed = after
            .keys()
            .filter(|name| before.get(*name) != after.get(*name))
            .collect();
        assert!(changed.is_empty() && before.len() == after.len(), "{changed:?}");
        assert!(
            !guest.calls().iter().any(|call| call.starts_with("systemctl")),
            "{:?}",
            guest.calls()
        );
    }
}

#[test]
fn tier2_damage_of_every_kind_is_repaired() {
    let test = "tier2_damage_of_every_kind_is_repaired";
    if !needs(test, &["dash"]) {
        return;
    }
    let guest = Guest::new();
    guest.deliver_the_source("");
    guest.boot();
    let whole = guest.state();
    for name in whole
        .keys()
        .filter(|name| !name.starts_with("etc/passwd") && !name.starts_with("etc/group"))
    {
        let path = guest.at(&format!("root/{name}"));
        let link = path.is_symlink();
        if link {
            fs::remove_file(&path).unwrap();
        } else {
            // As a crash leaves it: there, and empty.
            fs::write(&path, "").unwrap();
        }
        let ran = guest.boot();
        assert_eq!(
            guest.entry(name).as_ref(),
            whole.get(name),
            "{name}: {}",
            ran.said
        );
    }
    let path = guest.at(AGENT);
    let mut binary = fs::read(&path).unwrap();
    let middle = binary.len() / 2;
    binary[middle] ^= 1;
    fs::write(&path, binary).unwrap();
    let ran = guest.service();
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    assert_eq!(guest.state(), whole, "one wrong bit in the binary");
}

#[test]
fn tier2_sources_are_tried_in_their_order_and_a_wrong_file_is_never_used() {
    let test = "tier2_sources_are_tried_in_their_order_and_a_wrong_file_is_never_used";
    if !needs(test, &["dash", "python3", "curl", "wget"]) {
        return;
    }
    let guest = Guest::new();
    guest.write("served/wrong", "not it");
    fs::copy(guest.at("source"), guest.at("served/agent")).unwrap();
    let address = ports::free().unwrap();
    let mut server = Launch::new("python3")
        .args(["-m", "http.server", "--bind", "127.0.0.1"])
        .arg(address.port().to_string())
        .arg("--directory")
        .arg(guest.at("served"))
        .start(guest.folder.path())
        .unwrap();
    server.wait_for_port(address, Duration::from_secs(30)).unwrap();
    // A disk: the mount is a stand-in, the label's link and the copy are real.
    guest.write("disk/broken/agent", "half");
    guest.write("root/dev/disk/by-label/broken", "");
    let disk = guest.at("disk");
    guest.tool("mount", &format!("cp -r '{}/broken/.' \"$4\"", disk.display()));
    guest.tool("umount", "rm -rf \"$1\"/*");
    guest.deliver_from(
        &format!(
            "    - disk: {{ label: broken, path: nowhere }}\n    - disk: {{ label: broken, path: agent }}\n    - url: \
             http://{address}/none\n    - url: http://{address}/wrong\n    - url: http://{address}/agent"
        ),
        "",
    );
    // The last one has neither curl nor wget.
    for absent in [&[][..], &["curl"], &["curl", "wget"]] {
        fs::remove_file(guest.at(AGENT)).ok();
        let hidden = absent.join("|");
        guest.write(
            "boot-without",
            format!(
                "command() {{ case \"$2\" in {}) return 1 ;; *) command -v \"$2\" ;; esac; }}\n",
                if hidden.is_empty() { "-" } else { &hidden }
            ),
        );
        let without = guest
            .text("boot-without")
            .replace("command -v \"$2\"", "type \"$2\" >/dev/null");
        let script = guest.text("root/var/lib/virtfleet/delivery/deliver");
        if script.is_empty() {
            let ran = guest.boot();
            assert_eq!(ran.code, Some(0), "{}", ran.said);
            for line in [
                "cannot get the agent from disk broken nowhere: is it there and reachable?",
                "disk broken agent gave a file with the SHA-256",
                "/none: is it there and reachable?",
                "/wrong gave a file with the SHA-256",
            ] {
                assert!(ran.said.contains(line), "{line}: {}", ran.said);
            }
        } else {
            guest.write("deliver", without + &script);
            let launch = guest.launch("dash").arg(guest.at("deliver"));
            let (code, said) = launch.said(Duration::from_mins(1)).unwrap();
            assert_eq!(code, 0, "{absent:?}: {said}");
        }
        assert!(guest.has_agent(), "{absent:?}");
        assert!(fs::read_dir(guest.at("root/run")).unwrap().all(|entry| {
            !entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("virtfleet-disk")
        }));
    }
}

#[test]
fn tier2_a_real_disk_is_mounted_read_only_and_let_go() {
    let test = "tier2_a_real_disk_is_mounted_read_only_and_let_go";
    if !needs(test, &["dash", "mkfs.ext4", "losetup", "debugfs", "blkid"]) {
        return;
    }
    let guest = Guest::new();
    fs::create_dir(guest.at("disk")).unwrap();
    fs::copy(guest.at("source"), guest.at("disk/virtfleet-agent")).unwrap();
    let image = guest.at("disk.img");
    fs::File::create(&image).unwrap().set_len(96 << 20).unwrap();
    let patience = Duration::from_mins(1);
    Launch::new("mkfs.ext4")
        .args(["-q", "-F", "-d"])
        .args([guest.at("disk").as_os_str(), image.as_os_str()])
        .text(patience)
        .unwrap();
    // The one of `make agent-disk`, with the input that names what is on it.
    let script = Launch::new(shipped("packaging/image/agent-disk.sh"));
    script
        .args([guest.at("agent-disk"), guest.at("source")])
        .arg("registry.example.org")
        .text(patience)
        .unwrap();
    let label = Launch::new("blkid").args(["-p", "-o", "value", "-s", "LABEL"]);
    let label = label.arg(guest.at("agent-disk/agent.img")).text(patience);
    assert_eq!(label.unwrap().trim(), "virtfleet");
    let input = guest.text("agent-disk/delivery.yaml");
    for part in [
        guest.sum("source").as_str(),
        "disk: { label: virtfleet, path: virtfleet-agent }",
    ] {
        assert!(input.contains(part), "{part}: {input}");
    }
    // mount(8) makes a loop device of a regular file by itself and takes it away with the mount.
    fs::create_dir_all(guest.at("root/dev/disk/by-label")).unwrap();
    let link = guest.at("root/dev/disk/by-label/virtfleet");
    guest.deliver_from("    - disk: { label: virtfleet, path: virtfleet-agent }", "");
    for disk in ["disk.img", "agent-disk/agent.img"] {
        fs::remove_file(guest.at(AGENT)).ok();
        fs::remove_file(&link).ok();
        symlink(guest.at(disk), &link).unwrap();
        let before = guest.sum(disk);
        let ran = guest.boot();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(
            !mounts.contains(&guest.folder.path().display().to_string()),
            "{mounts}"
        );
        if ran.said.contains("failed to setup loop device") {
            skip::skip(TIER, test, "no loop device can be had").unwrap();
            return;
        }
        assert!(guest.has_agent(), "{disk}: {}", ran.said);
        assert_eq!(guest.sum(disk), before, "{disk} was not written to");
    }
}

/// The user namespace has no mapping: there, the files of the script belong to another user.
#[test]
fn tier2_the_agent_disk_is_the_same_for_each_user_and_at_each_time() {
    let test = "tier2_the_agent_disk_is_the_same_for_each_user_and_at_each_time";
    if !needs(test, &["mke2fs", "debugfs", "unshare"]) {
        return;
    }
    let namespace = Launch::new("unshare").args(["--user", "true"]);
    if skip::need(TIER, test, namespace.text(COMMAND_TIMEOUT))
        .unwrap()
        .is_none()
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("agent"), "the agent\n").unwrap();
    let script = shipped("packaging/image/agent-disk.sh");
    let other = Launch::new("unshare").arg("--user").arg(&script);
    for (name, launch) in [("root", Launch::new(script)), ("other", other)] {
        let launch = launch.args([at(name), at("agent")]).arg("registry.example.org");
        let launch = launch.env("SOURCE_DATE_EPOCH", "1000000000");
        launch.text(COMMAND_TIMEOUT).unwrap();
    }
    let disk = |name: &str| fs::read(at(name).join("agent.img")).unwrap();
    assert!(disk("root") == disk("other"), "the disks differ");
    for path in ["/", "/virtfleet-agent"] {
        let stat = Launch::new("debugfs").args(["-R", &format!("stat {path}")]);
        let stat = stat.arg(at("root/agent.img")).text(COMMAND_TIMEOUT).unwrap();
        assert_eq!(stat.matches("0x3b9aca00:00000000").count(), 4, "{stat}");
    }
}

#[test]
fn tier2_an_upgrade_by_hand_stays_until_user_data_asks_for_another() {
    let test = "tier2_an_upgrade_by_hand_stays_until_user_data_asks_for_another";
    if !needs(test, &["dash"]) {
        return;
    }
    let guest = Guest::new();
    guest.deliver_the_source("");
    guest.boot();
    // Another binary, as far as its sum goes.
    let mut newer = fs::read(guest.at("source")).unwrap();
    newer.extend(b"newer");
    guest.write("newer", &newer);
    fs::set_permissions(
        guest.at("newer"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let newer = guest.at("newer").display().to_string();
    guest
        .launch(&newer)
        .args(["install", "--root"])
        .arg(guest.at("root"))
        .text(Duration::from_secs(30))
        .unwrap();
    assert_eq!(guest.sum(AGENT), guest.sum("newer"));
    guest.boot();
    assert_eq!(
        guest.sum(AGENT),
        guest.sum("newer"),
        "the old user-data does not undo it"
    );

    // Damaged, it cannot be had from anywhere: what was asked for comes back.
    fs::write(guest.at(AGENT), "damaged").unwrap();
    guest.boot();
    assert!(guest.has_agent());

    // Upgraded again; then user-data asks for a third one.
    guest
        .launch(&newer)
        .args(["install", "--root"])
        .arg(guest.at("root"))
        .text(Duration::from_secs(30))
        .unwrap();
    let mut third = fs::read(guest.at("source")).unwrap();
    third.extend(b"third");
    guest.write("source", &third);
    guest.deliver_the_source("");
    guest.boot();
    assert!(guest.has_agent(), "the new user-data wins");
}

#[test]
fn tier2_no_source_costs_its_time_and_never_fails_the_boot() {
    let test = "tier2_no_source_costs_its_time_and_never_fails_the_boot";
    if !needs(test, &["dash"]) {
        return;
    }
    let guest = Guest::new().wait(10);
    guest.deliver_from("    - url: file:///nowhere/at/all", "");
    let ran = guest.boot();
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    for said in [
        "no source gave the agent",
        "virtfleet-delivery.service keeps trying",
    ] {
        assert!(ran.said.contains(said), "{said}: {}", ran.said);
    }
    let calls = guest.calls();
    assert!(
        calls.contains(&"systemctl start --no-block virtfleet-delivery.service".to_owned()),
        "{calls:?}"
    );
    assert!(
        guest
            .text("root/dev/console")
            .contains("no source gave the agent")
    );
    assert_eq!(guest.service().code, Some(1), "systemd starts it again");
}
