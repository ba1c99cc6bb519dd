//! The power is cut while disks are provisioned: the next boot completes what was begun or refuses it, and nothing that was written
//! after the first mount is lost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, Scene, play},
    sim::Random,
    wait::measure,
};

use crate::kit::{self, PATIENCE};

const DISKS: &str = "
- { name: one, match: { serial: one }, filesystem: ext4, mountPoint: /data/one, seedFrom: existing, required: true }
- { name: two, match: { serial: two }, filesystem: xfs, mountPoint: /data/two, required: true }
- { name: three, match: { serial: three }, filesystem: btrfs, mountPoint: /data/three, required: true }
";
const NAMES: [&str; 3] = ["one", "two", "three"];

/// What writes a file to each disk as soon as it is mounted, brings it to the disk, and then notes on the root disk that it is there.
const MARKER: &str = "set -e
cat >/etc/systemd/system/mark@.service <<'END'
[Unit]
DefaultDependencies=no
[Service]
ExecStart=/bin/sh -c 'until mountpoint -q /data/%i; do sleep 0.02; done; if [ ! -e /root/mark-%i ]; then echo kept >/data/%i/mark && sync -f /data/%i && touch /root/mark-%i && sync -f /root; fi'
END
systemctl daemon-reload
mkdir -p /data/one/old; head -c 5000000 /dev/urandom >/data/one/old/big; n=0
while [ $n -lt 60 ]; do n=$((n + 1)); echo $n >/data/one/old/$n; done; sync
cd /data/one && find . -type f | sort | xargs sha256sum >/root/old; sync
systemctl start --no-block mark@one mark@two mark@three";

/// Cuts the power once; says where provisioning was.
fn cut(scene: &Scene, seed: u64) -> Result<String> {
    // From the first intent on; every fourth cut comes earlier, in the proofs.
    let after = Random::new(seed).between(0.0, 10.0);
    let early = seed.is_multiple_of(4);
    let mut vm = kit::vm(&format!("cut{seed}"));
    for name in NAMES {
        vm = vm.disk(Disk::blank(name, 4 * GIB).serial(name));
    }
    let machine = kit::guest(scene, &vm, DISKS)?;
    machine.run(MARKER)?;
    for name in NAMES {
        machine.slow(name, 0, 100)?;
    }
    machine.run("systemctl start --no-block virtfleet-provision")?;
    if !early {
        machine.run_until(
            "test -s /var/lib/virtfleet/journal/audit.jsonl",
            "the first intent",
        )?;
    }
    measure(Duration::from_secs_f64(after), || Ok(()))?;
    machine.cut_power();
    machine.boot_to_agent()?;
    let state = "cd /var/lib/virtfleet/journal 2>/dev/null && grep -o '\"progress\": *\"[a-z]*\"' *.json | tr -d '\" ' | xargs";
    let were = machine.sh(state)?.stdout;
    came_back(&machine).with_context(|| format!("seed {seed}, {after:.2} s: {were}"))?;
    machine.cut_power();
    Ok(format!(
        "{seed:>4} {after:>5.2} s  journal at the next boot: {were}"
    ))
}

fn came_back(machine: &Guest) -> Result<()> {
    let over = "state=$(systemctl show -P ActiveState virtfleet-provision); [ $state = active ] || [ $state = failed ]";
    machine.run_within(&format!("until {over}; do sleep 0.2; done"), PATIENCE)?;
    kit::apply(machine)?;
    for name in NAMES {
        let place = format!("/data/{name}");
        let marked = machine.sh(&format!("test -e /root/mark-{name}"))?.code == 0;
        if let Err(error) = kit::mounted(machine, &place) {
            let refusals = kit::refusals(machine, name)?;
            ensure!(
                !refusals.is_empty(),
                "{name} is neither mounted nor refused: {error:#}"
            );
            ensure!(!marked, "{name} was in use and is refused: {refusals:#?}");
            println!("      {name} is refused: {}", refusals[0]["message"]);
            continue;
        }
        ensure!(
            !marked || machine.run(&format!("cat {place}/mark"))? == "kept",
            "what was written to {name} is lost"
        );
        if name == "one" {
            machine.run("cd /data/one && sha256sum --quiet -c /root/old")?;
        }
    }
    Ok(())
}

#[test]
fn tier4_the_power_is_cut_while_disks_are_provisioned() {
    let cuts = std::env::var(kit::CUTS).ok().and_then(|text| text.parse().ok());
    for seed in 1..=cuts.unwrap_or(1) {
        play("tier4_the_power_is_cut_while_disks_are_provisioned", |scene| {
            println!("{}", cut(scene, seed)?);
            Ok(())
        });
    }
}
