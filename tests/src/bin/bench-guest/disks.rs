//! Three blank disks of 100 GiB in a guest: a boot that formats and mounts them, compared with mkfs
//! alone in the same guest; and the cost of a boot and of a reconcile run without changes.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, Scene, Start, Vm},
    measure::Table,
    real::{self, AGENT},
};

use crate::{median, seconds};

const DISKS: &str = "
- { name: ext4, match: { serial: ext4 }, filesystem: ext4, mountPoint: /srv/ext4, grow: true }
- { name: xfs, match: { serial: xfs }, filesystem: xfs, mountPoint: /srv/xfs, grow: true }
- { name: btrfs, match: { serial: btrfs }, filesystem: btrfs, mountPoint: /srv/btrfs, grow: true }
";
/// The mkfs commands with the agent's arguments.
const MKFS: [(&str, &str); 3] = [
    ("ext4", "mkfs.ext4 -q -m 0 -E nodiscard"),
    ("xfs", "mkfs.xfs -q -K"),
    ("btrfs", "mkfs.btrfs -q -K"),
];
const PASSES: usize = 9;
const LONG: Duration = Duration::from_mins(10);

/// Adds the rows.
pub(crate) fn measure(table: &mut Table) -> Result<()> {
    let scene = Scene::open("bench-guest")?;
    let mut vm = Vm::new("disks").no_seed();
    for (kind, _) in MKFS {
        vm = vm.disk(Disk::blank(kind, 100 * GIB).serial(kind));
    }
    let machine = scene.start(&vm, Start::Booted)?;
    let folder = real::agent_folder(scene.path())?;
    machine.copy_in(&folder, "/root/virtfleet")?;
    fs::remove_dir_all(&folder).context("remove a folder that was copied")?;
    machine.run("/root/virtfleet/virtfleet-agent install --no-start")?;
    declare(&machine, "[]")?;
    let none = boot(&machine)?;
    declare(&machine, DISKS)?;
    let blank = boot(&machine)?;
    for (kind, _) in MKFS {
        machine.run(&format!("mountpoint -q /srv/{kind}"))?;
    }
    let mut alone = Duration::ZERO;
    for (kind, tool) in MKFS {
        let name = format!("alone-{kind}");
        machine.plug_disk(&Disk::blank(&name, 100 * GIB).serial(&name))?;
        alone += timed(
            &machine,
            &format!("{tool} $(readlink -e /dev/disk/by-id/virtio-{name})"),
        )?;
        machine.unplug_disk(&name)?;
    }
    let pass = several(&machine, &format!("{AGENT} apply disks"))?;
    let start = several(&machine, &format!("{AGENT} --version"))?;
    let there = boot(&machine)?;

    let beyond = |more: Duration, less: Duration| seconds(more.saturating_sub(less));
    table.row(&[
        &format!(
            "disks: provisioning in a boot, none declared ({})",
            machine.accel().name()
        ),
        &seconds(none),
    ]);
    table.row(&["  with three blank ones of 100 GiB", &seconds(blank)]);
    table.row(&["  the three mkfs alone, same guest", &seconds(alone)]);
    table.row(&[
        "  beyond both (goal with KVM: 22 s, 20 s of them the proof)",
        &beyond(blank, none + alone),
    ]);
    let ratio = blank.as_secs_f64() / (none + alone).as_secs_f64();
    table.row(&["  ratio to both", &format!("{ratio:.2}")]);
    table.row(&["  in the next boot, nothing to format", &seconds(there)]);
    table.row(&["  beyond that with none declared", &beyond(there, none)]);
    table.row(&["a pass over three disks, nothing to do", &seconds(pass)]);
    table.row(&[
        "  beyond the program's start (goal with KVM: 0.05 s)",
        &beyond(pass, start),
    ]);
    Ok(())
}

/// Writes agent settings with these disks.
fn declare(machine: &Guest, disks: &str) -> Result<()> {
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners:\n  \
         - {{ name: default, address: \"127.0.0.1:10911\", plain: true }}\ndisks: {disks}"
    );
    machine.write_file("/etc/virtfleet/agent.d/50-disks.yaml", text.as_bytes(), "0644")?;
    machine.run(&format!("{AGENT} check-config")).map(drop)
}

/// Boots and returns how long provisioning took in that boot.
fn boot(machine: &Guest) -> Result<Duration> {
    machine.power_off()?;
    machine.boot_to_agent()?;
    let over = "state=$(systemctl show -P ActiveState virtfleet-provision); [ $state = active ] || [ $state = failed ]";
    machine.run_within(
        &format!("until {over}; do sleep 0.1; done; systemctl is-active virtfleet-provision"),
        LONG,
    )?;
    let moment = |name: &str| -> Result<u64> {
        let text = machine.run(&format!(
            "systemctl show -P ExecMain{name}TimestampMonotonic virtfleet-provision"
        ))?;
        text.parse().with_context(|| format!("{name}: {text:?}"))
    };
    let (start, exit) = (moment("Start")?, moment("Exit")?);
    ensure!(exit > start, "provisioning from {start} to {exit}");
    Ok(Duration::from_micros(exit - start))
}

/// Duration of a command by the guest's clock.
fn timed(machine: &Guest, command: &str) -> Result<Duration> {
    let text = machine.run_within(
        &format!("from=$(date +%s%N); {command} >/dev/null || exit 1; to=$(date +%s%N); echo $((to - from))"),
        LONG,
    )?;
    Ok(Duration::from_nanos(
        text.parse().with_context(|| format!("{text:?}"))?,
    ))
}

/// Median duration of several runs of a command.
fn several(machine: &Guest, command: &str) -> Result<Duration> {
    let times: Result<Vec<Duration>> = (0..PASSES).map(|_| timed(machine, command)).collect();
    Ok(median(times?))
}
