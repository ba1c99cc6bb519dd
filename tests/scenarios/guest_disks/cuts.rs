//! The power is cut while disks are provisioned: the next boot completes what was begun or refuses
//! it, and nothing that was written after the first mount is lost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, Scene, play},
    real::AGENT,
    sim::Random,
    skip,
    wait::measure,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

const DISKS: &str = "
- { name: one, match: { serial: one }, filesystem: ext4, mountPoint: /data/one, seedFrom: existing, required: true }
- { name: two, match: { serial: two }, filesystem: xfs, mountPoint: /data/two, required: true }
- { name: three, match: { serial: three }, filesystem: btrfs, mountPoint: /data/three, required: true }
";
const NAMES: [&str; 3] = ["one", "two", "three"];
const TOOLS: [&str; 3] = ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"];
const AUDIT: &str = "/var/lib/virtfleet/journal/audit.jsonl";

/// What writes a file to each disk as soon as it is mounted, brings it to the disk, and then notes
/// on the root disk that it is there.
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

/// Where provisioning is when the power goes.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// While the tool of this disk writes its filesystem.
    InMkfs(usize),
    /// So many seconds after the first intent.
    Anywhere(f64),
    /// So many seconds after the begin, in the proofs.
    Early(f64),
}

impl Moment {
    /// Every other cut falls into a mkfs, of each kind in turn; every fourth one into the proofs.
    fn of(seed: u64) -> Self {
        let after = Random::new(seed).between(0.0, 10.0);
        match seed % 4 {
            0 => Self::Early(after),
            2 => Self::Anywhere(after),
            _ => Self::InMkfs(usize::try_from(seed / 2).unwrap_or_default() % 3),
        }
    }
}

/// Provisions, and cuts the power at a moment. Says where that was.
fn cut_at(machine: &Guest, moment: Moment, seed: u64) -> Result<String> {
    let (target, limit) = match moment {
        // So slow that mkfs takes half a minute.
        Moment::InMkfs(index) => (Some(index), 6),
        _ => (None, 100),
    };
    for (index, name) in NAMES.into_iter().enumerate() {
        machine.slow(
            name,
            0,
            if target.is_none_or(|target| target == index) {
                limit
            } else {
                0
            },
        )?;
    }
    machine.run("systemctl start --no-block virtfleet-provision")?;
    let first = || machine.run_until(&format!("test -s {AUDIT}"), "the first intent");
    let said = match moment {
        Moment::InMkfs(index) => {
            let (name, tool) = (NAMES[index], TOOLS[index]);
            // Between the word of the audit record and this tool's end there is nothing but the
            // format itself.
            let writes = format!(
                "grep '\"name\":\"{name}\"' {AUDIT} 2>/dev/null | tail -n 1 | grep -q '\"moment\":\"about-to\"' && pgrep -x {tool} >/dev/null"
            );
            machine.run_until(&writes, tool)?;
            let after = Random::new(seed).between(0.0, 4.0);
            measure(Duration::from_secs_f64(after), || Ok(()))?;
            // From here on no write of the tool reaches the disk, so the tool cannot finish between
            // this check and the power cut.
            machine.hang(name)?;
            machine
                .run(&writes)
                .with_context(|| format!("{tool} was over after {after:.2} s"))?;
            format!("in {tool}, {after:.2} s after its start")
        }
        Moment::Anywhere(after) => {
            first()?;
            measure(Duration::from_secs_f64(after), || Ok(()))?;
            format!("{after:.2} s after the first intent")
        }
        Moment::Early(after) => {
            measure(Duration::from_secs_f64(after), || Ok(()))?;
            format!("{after:.2} s after the begin")
        }
    };
    machine.cut_power();
    Ok(said)
}

/// Cuts the power once; returns how far provisioning was, and the result.
fn cut(scene: &Scene, seed: u64) -> Result<String> {
    let mut vm = kit::vm(&format!("cut{seed}"));
    for name in NAMES {
        vm = vm.disk(Disk::blank(name, 4 * GIB).serial(name));
    }
    let machine = kit::guest(scene, &vm, DISKS)?;
    machine.run(MARKER)?;
    let moment = Moment::of(seed);
    let said = cut_at(&machine, moment, seed)?;
    machine.boot_to_agent()?;
    let came = came_back(&machine).with_context(|| format!("seed {seed}, cut {said}"))?;
    machine.cut_power();
    Ok(format!("seed {seed:>3}, cut {said}: {came}"))
}

/// What was done with each disk, and that it was right.
fn came_back(machine: &Guest) -> Result<String> {
    let over = "state=$(systemctl show -P ActiveState virtfleet-provision); [ $state = active ] || [ $state = failed ]";
    machine.run_within(&format!("until {over}; do sleep 0.5; done"), AGENT_TIMEOUT)?;
    kit::apply(machine)?;
    let boot = machine.run("tr -d - </proc/sys/kernel/random/boot_id")?;
    let mut all = Vec::new();
    for name in NAMES {
        let place = format!("/data/{name}");
        let marked = machine.sh(&format!("test -e /root/mark-{name}"))?.code == 0;
        let mut refused = String::new();
        if let Err(error) = kit::mounted(machine, &place) {
            let refusals = kit::refusals(machine, name)?;
            ensure!(
                !refusals.is_empty(),
                "{name} is neither mounted nor refused: {error:#}"
            );
            ensure!(!marked, "{name} was in use and is refused: {refusals:#?}");
            // A person who looks at it may say that nothing else is on it.
            let hash = refusals[0]["evidence"].as_str().unwrap_or_default();
            ensure!(!hash.is_empty(), "{name} cannot be approved: {refusals:#?}");
            machine.run_within(
                &format!("{AGENT} disks approve {name} --evidence {hash}"),
                AGENT_TIMEOUT,
            )?;
            kit::apply(machine)?;
            kit::mounted(machine, &place).with_context(|| format!("{name} was approved"))?;
            refused = format!(
                "refused as {} and approved, ",
                refusals[0]["kind"].as_str().unwrap_or("?")
            );
        }
        ensure!(
            !marked || machine.run(&format!("cat {place}/mark"))? == "kept",
            "what was written to {name} is lost"
        );
        if name == "one" {
            machine.run("cd /data/one && sha256sum --quiet -c /root/old")?;
        }
        let (before, now) = steps(machine, name, &boot)?;
        all.push(format!(
            "{name} {} | {refused}{}",
            before.join(" "),
            now.join(" ")
        ));
    }
    kit::settled(machine)?;
    Ok(all.join("; "))
}

/// What the audit record has of a disk, before this boot and in it. Once a format is done, nothing
/// that writes to the disk is begun.
fn steps(machine: &Guest, name: &str, boot: &str) -> Result<(Vec<String>, Vec<String>)> {
    let (mut before, mut now, mut done) = (Vec::new(), Vec::new(), false);
    for line in machine.run(&format!("cat {AUDIT}"))?.lines() {
        let record: Value = serde_json::from_str(line).with_context(|| format!("audit: {line}"))?;
        if record["name"] != name {
            continue;
        }
        let word = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
        let (moment, step) = (word("moment"), word("step"));
        ensure!(!done, "{name} was formatted, and then: {moment} {step}");
        done = moment == "done" && step == "format";
        let list = if word("bootId").replace('-', "") == boot {
            &mut now
        } else {
            &mut before
        };
        list.push(format!("{moment} {step}"));
    }
    Ok((before, now))
}

#[test]
fn tier4_the_power_is_cut_while_disks_are_provisioned() {
    if skip::deferred(4, "tier4_the_power_is_cut_while_disks_are_provisioned", kit::SOAK) {
        return;
    }
    let cuts = std::env::var(kit::CUTS).ok().and_then(|text| text.parse().ok());
    let first = std::env::var("VIRTFLEET_DISK_CUTS_FROM")
        .ok()
        .and_then(|text| text.parse().ok());
    let first: u64 = first.unwrap_or(1);
    let mut failed = Vec::new();
    for seed in first..first + cuts.unwrap_or(1) {
        // The others are worth knowing, too; what was wrong is on standard error by then.
        let played = std::panic::catch_unwind(|| {
            play("tier4_the_power_is_cut_while_disks_are_provisioned", |scene| {
                println!("{}", cut(scene, seed)?);
                Ok(())
            });
        });
        if played.is_err() {
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "cuts with the seeds {failed:?}");
}
