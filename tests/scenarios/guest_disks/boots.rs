//! Boots: blank disks are formatted and mounted before containerd and kubelet start, and mounted
//! alone after that; a required disk that is missing holds both back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, Suite, needs, play},
    real::AGENT,
    skip,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

/// The first proof reads long enough to show its progress.
const THREE: &str = "
- name: containerd
  match: { serial: containerd }
  proofSeconds: 6
  filesystem: ext4
  mountPoint: /var/lib/containerd
  options: [noatime]
  seedFrom: existing
  required: true
- name: kubelet
  match: { volume: kubelet }
  proofSeconds: 1
  filesystem: xfs
  mountPoint: /var/lib/kubelet
  owner: { mode: \"0711\" }
  required: true
- name: data
  match: { size: 100Gi, order: 1, allowPositional: true }
  proofSeconds: 1
  filesystem: btrfs
  mountPoint: /data
  required: true
";

/// Files of every sort under the first mount point, before it is one, and what tells them apart.
const BEFORE: &str = "set -e; cd /var/lib && mkdir -p containerd/deep/er && cd containerd
echo text >deep/er/file; ln -s ../file deep/link; ln deep/er/file deep/hard; mkfifo deep/pipe; touch -d 2001-02-03T04:05:06Z old
chown 1234:4321 old; chmod 4750 old; head -c 3000000 /dev/urandom >big; truncate -s 1M sparse
setfattr -n user.test -v yes old 2>/dev/null || python3 -c 'import os; os.setxattr(\"old\", \"user.test\", b\"yes\")'";
const LOOK: &str = "cd /var/lib/containerd && find . -not -name lost+found -printf '%p %y %m %U:%G %T@ %l %n\\n' | grep -v '^\\. ' | sort
find . -type f | sort | xargs sha256sum; python3 -c 'import os; print(os.getxattr(\"old\", \"user.test\"))'";

/// The kinds of what is mounted at the three places, and their UUIDs.
fn mounts(machine: &Guest) -> Result<[(String, String); 3]> {
    Ok([
        kit::mounted(machine, "/var/lib/containerd")?,
        kit::mounted(machine, "/var/lib/kubelet")?,
        kit::mounted(machine, "/data")?,
    ])
}

/// Both services run, and each was started when all three were mounted.
fn services_saw_all(machine: &Guest) -> Result<()> {
    machine.run_until(
        "systemctl is-active --quiet containerd kubelet",
        "containerd and kubelet",
    )?;
    for name in ["containerd", "kubelet"] {
        machine.run_until(&format!("test -e /run/saw-{name}"), "what a service has seen")?;
        let saw = machine.run(&format!("cat /run/saw-{name}"))?;
        ensure!(
            saw.lines().count() == 3,
            "{name} was started when this alone was mounted:\n{saw}"
        );
    }
    Ok(())
}

/// What is logged while a disk is read to prove that it is blank.
const READING: &str = "to prove that it is blank";

/// Each disk was read by time, the log says how far, and the serial console has shown the progress.
fn proven(machine: &Guest) -> Result<()> {
    let log = machine.journal("virtfleet-provision")?;
    let is_proof = |line: &&str| line.contains("blank, ") && !line.contains(READING);
    let proofs: Vec<&str> = log.lines().filter(is_proof).collect();
    println!("{}", proofs.join("\n"));
    ensure!(
        proofs.len() == 3
            && proofs
                .iter()
                .all(|line| line.contains("could have been missed") || line.contains("fully proven")),
        "{log}"
    );
    ensure!(
        machine.console().contains(READING),
        "the console shows no progress; the log:\n{log}"
    );
    Ok(())
}

fn three(test: &str, suite: Suite, reboot: bool) {
    play(test, |scene| {
        if skip::need(4, test, needs(suite))?.is_none() {
            return Ok(());
        }
        let vm = kit::vm("three")
            .suite(suite)
            .disk(Disk::blank("containerd", 100 * GIB).serial("containerd"))
            .disk(Disk::blank("kubelet", 100 * GIB).scsi())
            .disk(Disk::blank("data", 100 * GIB).unknown());
        let machine = kit::guest(scene, &vm, THREE)?;
        machine.run(BEFORE)?;
        let before = machine.run(LOOK)?;
        let (plan, code) = kit::plan(&machine)?;
        ensure!(code == 2, "changes are planned: {plan:#}");
        // As in a first boot: the services are asked for while provisioning runs.
        let begun = Instant::now();
        machine.run_within(
            "systemctl start --no-block containerd kubelet; systemctl start virtfleet-provision",
            AGENT_TIMEOUT,
        )?;
        let took = begun.elapsed();
        services_saw_all(&machine)?;
        let first = mounts(&machine)?;
        ensure!(
            first.each_ref().map(|(kind, _)| kind.as_str()) == ["ext4", "xfs", "btrfs"],
            "{first:?}"
        );
        proven(&machine)?;
        let after = machine.run(LOOK)?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        ensure!(machine.run("stat -c %a /var/lib/kubelet")? == "711");
        ensure!(
            machine
                .run("findmnt -no OPTIONS /var/lib/containerd")?
                .contains("noatime")
        );
        kit::settled(&machine)?;
        println!("three disks of 100 GiB took {took:?}");
        machine.run(
            "for place in /var/lib/containerd /var/lib/kubelet /data; do echo kept >$place/mark; done; sync",
        )?;

        if !reboot {
            return Ok(());
        }
        machine.power_off()?;
        machine.boot_to_agent()?;
        services_saw_all(&machine)?;
        ensure!(
            mounts(&machine)? == first,
            "{:?} before, {:?} now",
            first,
            mounts(&machine)?
        );
        ensure!(
            machine.run("cat /var/lib/containerd/mark /var/lib/kubelet/mark /data/mark")?
                == "kept\nkept\nkept"
        );
        machine.run_until("systemctl is-active --quiet virtfleet-provision", "provisioning")?;
        let log = machine.journal("virtfleet-provision")?;
        ensure!(
            !log.contains(READING),
            "a boot that formats nothing has read disks:\n{log}"
        );
        kit::settled(&machine)?;
        for name in ["containerd", "kubelet", "data"] {
            ensure!(
                kit::begun(&machine, name, "format")? == 1,
                "{name} was formatted again"
            );
        }
        let failed = machine.run(
            "systemctl list-units --failed --plain --no-legend | grep -v virtfleet-agent.service || true",
        )?;
        ensure!(failed.is_empty(), "failed: {failed}");
        Ok(())
    });
}

#[test]
fn tier4_three_blank_disks_are_mounted_before_containerd_and_again_at_the_next_boot() {
    three(
        "tier4_three_blank_disks_are_mounted_before_containerd_and_again_at_the_next_boot",
        Suite::Trixie,
        true,
    );
}

#[test]
fn tier4_three_blank_disks_are_mounted_before_containerd_on_debian_12() {
    if skip::deferred(
        4,
        "tier4_three_blank_disks_are_mounted_before_containerd_on_debian_12",
        kit::SOAK,
    ) {
        return;
    }
    three(
        "tier4_three_blank_disks_are_mounted_before_containerd_on_debian_12",
        Suite::Bookworm,
        true,
    );
}

const MISSING: &str = "
- { name: late, match: { serial: late }, filesystem: ext4, mountPoint: /var/lib/kubelet, required: true }
";

#[test]
fn tier4_a_required_disk_that_is_missing_holds_kubelet_back_until_it_comes() {
    play(
        "tier4_a_required_disk_that_is_missing_holds_kubelet_back_until_it_comes",
        |scene| {
            let machine = kit::guest(scene, &kit::vm("missing"), MISSING)?;
            machine.run_within(
                "systemctl start virtfleet-provision virtfleet-reconcile.path || true",
                AGENT_TIMEOUT,
            )?;
            let started = machine.sh("systemctl start kubelet")?;
            ensure!(started.code != 0, "kubelet was started without its disk");
            // The node says why, in each place where somebody looks.
            let journal = machine.journal("virtfleet-disks")?;
            ensure!(
                journal.contains("late") && journal.contains("serial"),
                "the journal:\n{journal}"
            );
            kit::refused(&machine, "late", "missing")?;
            let check = machine.sh(&format!("{AGENT} disks check"))?;
            ensure!(
                check.code == 1 && format!("{}{}", check.stdout, check.stderr).contains("late"),
                "{check:?}"
            );
            let doctor = machine.sh(&format!("{AGENT} doctor"))?;
            ensure!(
                doctor.code == 1 && doctor.stdout.contains("late"),
                "{}",
                doctor.stdout
            );
            let findings = kit::findings(&machine)?;
            ensure!(findings.iter().any(|id| id.starts_with("disk-")), "{findings:?}");

            // After a boot, kubelet waits, and comes with the disk.
            machine.power_off()?;
            machine.boot_to_agent()?;
            machine.run_until("systemctl is-failed --quiet virtfleet-disks", "the gate")?;
            for service in ["containerd", "kubelet"] {
                ensure!(
                    machine.sh(&format!("systemctl is-active {service}"))?.code != 0,
                    "{service} runs"
                );
            }
            let begun = Instant::now();
            machine.plug_disk(&Disk::blank("late", 4 * GIB).serial("late"))?;
            kit::until_mounted(&machine, "/var/lib/kubelet")?;
            machine.run_until(
                "systemctl is-active --quiet containerd kubelet",
                "containerd and kubelet",
            )?;
            println!(
                "mounted and started {:?} after it was plugged in",
                begun.elapsed()
            );
            machine.run_until("test -e /run/saw-kubelet", "what a service has seen")?;
            let saw = machine.run("cat /run/saw-kubelet")?;
            ensure!(saw.contains("/var/lib/kubelet ext4"), "kubelet saw {saw}");
            // Because it was told, and not at the next quarter of an hour.
            ensure!(begun.elapsed() < Duration::from_mins(5), "{:?}", begun.elapsed());
            kit::settled(&machine)
        },
    );
}

#[test]
fn tier4_a_kernel_argument_starts_kubelet_without_its_required_disk() {
    let test = "tier4_a_kernel_argument_starts_kubelet_without_its_required_disk";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        let machine = kit::guest(scene, &kit::vm("optional"), MISSING)?;
        // The way out, at the boot loader's prompt.
        machine.power_off()?;
        machine.boot_with(&["virtfleet.disks=optional"])?;
        machine.wait_agent(AGENT_TIMEOUT)?;
        machine.run_until(
            "systemctl is-active --quiet containerd kubelet",
            "kubelet without its disk",
        )?;
        kit::not_mounted(&machine, "/var/lib/kubelet")
    });
}
