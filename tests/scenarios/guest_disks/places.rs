//! One disk for containerd, kubelet and logs: what lay there before is there after, also after a
//! reboot, in which systemd mounts all places before the services start.

use anyhow::{Result, ensure};
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, play},
    real::AGENT,
    skip,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

const NODE: &str = "
- name: node
  match: { serial: node }
  filesystem: ext4
  options: [noatime]
  seedFrom: existing
  required: true
  places:
  - { path: /var/lib/containerd, directory: containerd }
  - { path: /var/lib/kubelet }
  - { path: /var/log/pods, owner: { mode: \"0755\" } }
";

const BEFORE: &str = "set -e; mkdir -p /var/lib/containerd/deep /var/lib/kubelet/pki /var/log/pods/pod-1
cd /var/lib/containerd; chmod 0711 .; head -c 3000000 /dev/urandom >deep/big; ln deep/big hard; ln -s deep link
chown 1234:4321 deep; echo key >/var/lib/kubelet/pki/key; chmod 0600 /var/lib/kubelet/pki/key; chmod 0750 /var/lib/kubelet
chmod 0700 /var/log/pods; echo line >/var/log/pods/pod-1/0.log";
const LOOK: &str = "cd /; find var/lib/containerd var/lib/kubelet var/log/pods -printf '%p %y %m %U:%G %l\\n' | grep -v -e lost+found -e '^var/log/pods d' | sort
find var/lib/containerd var/lib/kubelet var/log/pods -type f | sort | xargs sha256sum";

/// Both services run, and each was started when the filesystem and all three places were mounted.
fn services_saw_all(machine: &Guest) -> Result<()> {
    machine.run_until(
        "systemctl is-active --quiet containerd kubelet && test -e /run/saw-containerd -a -e /run/saw-kubelet",
        "containerd and kubelet",
    )?;
    for name in ["containerd", "kubelet"] {
        let saw = machine.run(&format!("cat /run/saw-{name}"))?;
        for path in ["/var/lib/containerd ", "/var/lib/kubelet ", "/var/log/pods "] {
            ensure!(
                saw.contains(path),
                "{name} was started when this alone was mounted:\n{saw}"
            );
        }
    }
    Ok(())
}

fn right(machine: &Guest, before: &str) -> Result<()> {
    services_saw_all(machine)?;
    let after = machine.run(LOOK)?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    let modes = machine
        .run("stat -c %a /var/lib/containerd /var/lib/kubelet /var/log/pods /var/lib/virtfleet-disks/node")?;
    ensure!(modes == "711\n750\n755\n700", "{modes}");
    let one =
        machine.run("stat -c %d /var/lib/containerd /var/lib/kubelet /var/log/pods | sort -u | wc -l")?;
    ensure!(one == "1", "on {one} filesystems");
    ensure!(
        machine
            .run("findmnt -rno OPTIONS /var/log/pods")?
            .contains("noatime")
    );
    let listed = machine.run(&format!("{AGENT} disks"))?;
    ensure!(
        listed.contains("/var/lib/containerd, /var/lib/kubelet, /var/log/pods")
            && !listed.contains("not mounted"),
        "{listed}"
    );
    kit::settled(machine)
}

#[test]
fn tier4_one_disk_carries_containerd_kubelet_and_logs_over_a_reboot() {
    let test = "tier4_one_disk_carries_containerd_kubelet_and_logs_over_a_reboot";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        let vm = kit::vm("places").disk(Disk::blank("node", 20 * GIB).serial("node"));
        let machine = kit::guest(scene, &vm, NODE)?;
        machine.run(BEFORE)?;
        let before = machine.run(LOOK)?;
        machine.run_within(
            "systemctl start --no-block containerd kubelet; systemctl start virtfleet-provision",
            AGENT_TIMEOUT,
        )?;
        right(&machine, &before)?;
        machine.run("echo kept >/var/lib/kubelet/mark; sync")?;

        machine.power_off()?;
        machine.boot_to_agent()?;
        machine.run_until("systemctl is-active --quiet virtfleet-provision", "provisioning")?;
        ensure!(machine.run("cat /var/lib/kubelet/mark && rm /var/lib/kubelet/mark")? == "kept");
        right(&machine, &before)?;
        ensure!(
            kit::begun(&machine, "node", "format")? == 1,
            "it was formatted again"
        );
        // systemd has mounted the places itself, before the agent came.
        let at = |unit: &str, key: &str| -> Result<u64> {
            let said = machine.run(&format!("systemctl show -P {key} {unit}"))?;
            Ok(said.trim().parse()?)
        };
        let provision = at("virtfleet-provision", "ExecMainStartTimestampMonotonic")?;
        let kubelet = at("kubelet", "ExecMainStartTimestampMonotonic")?;
        for unit in [
            "var-lib-containerd.mount",
            "var-lib-kubelet.mount",
            "var-log-pods.mount",
        ] {
            let mounted = at(unit, "ActiveEnterTimestampMonotonic")?;
            ensure!(
                0 < mounted && mounted < kubelet,
                "{unit} {mounted}, kubelet {kubelet}"
            );
            println!("{unit} at {mounted} µs, provisioning from {provision} µs, kubelet from {kubelet} µs");
        }
        let failed = machine.run(
            "systemctl list-units --failed --plain --no-legend | grep -v virtfleet-agent.service || true",
        )?;
        ensure!(failed.is_empty(), "failed: {failed}");
        // Without the disk in all its places the gate is shut.
        machine.run("systemctl stop kubelet && umount /var/lib/kubelet")?;
        let check = machine.sh(&format!("{AGENT} disks check"))?;
        ensure!(
            check.code == 1 && format!("{}{}", check.stdout, check.stderr).contains("/var/lib/kubelet"),
            "{check:?}"
        );
        kit::applied(&machine)?;
        machine.run(&format!("{AGENT} disks check && mountpoint -q /var/lib/kubelet"))?;
        Ok(())
    });
}
