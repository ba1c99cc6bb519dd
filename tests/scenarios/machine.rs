//! The machines of other scenarios: that they boot, keep what they wrote, take a power cut, and
//! leave nothing behind.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    dns::{NetNs, Unbound, dhcp, veth},
    guest::Suite,
    machine::{Machine, Options, Root, play},
    wait::until,
};

const SOON: Duration = Duration::from_secs(30);

fn life(suite: Suite, root: &Root) -> Result<()> {
    let (outside, inside) = (NetNs::new()?, NetNs::new()?);
    veth((&outside, "vm0", &["10.78.0.1/24"]), (&inside, "eth0", &[]))?;
    let example = Unbound::cluster(1)
        .server("local-zone: \"example.\" redirect")
        .server("local-data: \"example. 30 IN A 192.0.2.80\"");
    let _dns = example.start(&outside, "10.78.0.1")?;
    let range = ("10.78.0.100", "10.78.0.120");
    let _dhcp = dhcp(&outside, "vm0", range, "10.78.0.1", "10.78.0.1", "corp.example")?;

    let options = Options::default()
        .networkd()
        .agent("")
        .file("/etc/marker", "before\n");
    let mut machine = Machine::boot(root, &inside, options)?;
    let release = machine.read("/etc/os-release")?;
    ensure!(release.contains(suite.name()), "{release}");
    ensure!(
        machine.read("/etc/marker")? == "before\n",
        "no file of before the boot"
    );
    machine.until_sh(SOON, "getent ahostsv4 first.example")?;
    machine.sh(
        "systemctl is-active virtfleet-provision.service virtfleet-dns.service virtfleet-reconcile.path",
    )?;
    machine.sh("virtfleet-agent --version && id virtfleet")?;
    // No device of the host's, and none of its settings.
    let read_only = machine.sh("findmnt -no OPTIONS /sys")?;
    ensure!(read_only.split(',').any(|one| one.trim() == "ro"), "{read_only}");

    machine.write("/var/lib/kept", "kept\n")?;
    machine
        .sh("ip link add cache type veth peer name nowhere && ip address add 169.254.20.10/32 dev cache")?;
    let before = machine
        .sh("cat /proc/sys/kernel/random/boot_id; systemctl show -P InvocationID virtfleet-dns.service")?;
    machine.reboot()?;
    let after = machine
        .sh("cat /proc/sys/kernel/random/boot_id; systemctl show -P InvocationID virtfleet-dns.service")?;
    ensure!(before != after, "it did not boot: {after}");
    ensure!(machine.read("/var/lib/kept")? == "kept\n", "the file is gone");
    let (code, _) = machine.try_sh("ip link show cache")?;
    ensure!(code != 0, "a link outlived the boot");
    machine.until_sh(SOON, "getent ahostsv4 second.example")?;

    machine.sh("printf 'cut' >/var/lib/cut; sync /var/lib/cut")?;
    machine.kill()?;
    ensure!(machine.sh("true").is_err(), "it is off");
    machine.power_on()?;
    ensure!(machine.read("/var/lib/cut")? == "cut", "the file is gone");
    machine.until_sh(SOON, "getent ahostsv4 third.example")?;

    let (first, folder) = (machine.first()?, machine.folder().to_owned());
    drop(machine);
    until(SOON, "the end of its processes", || {
        !Path::new(&format!("/proc/{first}")).exists()
    })?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    ensure!(!mounts.contains(&folder.display().to_string()), "{mounts}");
    ensure!(!folder.exists(), "{} is still there", folder.display());
    let marker = root.path().join("etc/marker");
    ensure!(!marker.exists(), "{} was written", marker.display());
    ensure!(
        !root.path().join("usr/bin/virtfleet-agent").exists(),
        "the root was written to"
    );
    Ok(())
}

fn lives(test: &str, suite: Suite) -> Result<()> {
    play(test, suite, |root| life(suite, root).context(suite.name()))
}

#[test]
fn tier2_a_debian_13_boots_reboots_and_takes_a_power_cut() {
    lives(
        "tier2_a_debian_13_boots_reboots_and_takes_a_power_cut",
        Suite::Trixie,
    )
    .unwrap();
}

#[test]
fn tier2_a_debian_12_boots_reboots_and_takes_a_power_cut() {
    lives(
        "tier2_a_debian_12_boots_reboots_and_takes_a_power_cut",
        Suite::Bookworm,
    )
    .unwrap();
}
