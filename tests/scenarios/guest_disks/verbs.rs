//! What a person does by hand: a plan in a file that is done only while it holds, and an approval
//! that is good once, for what was looked at.

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Disk, Guest, MIB, Output, play},
    real::AGENT,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

const DISKS: &str = "
- { name: data, match: { serial: data }, filesystem: ext4, mountPoint: /data }
";
const NODE: &str = "/dev/disk/by-id/virtio-data";
/// Small, because each pass reads all of it, which takes an emulated guest long.
const DISK_BYTES: u64 = 80 * MIB;

/// Puts a byte somewhere into the disk, given as an octal escape of `printf`.
fn put(machine: &Guest, byte: &str, at: u64) -> Result<()> {
    machine
        .run(&format!(
            "printf '\\{byte}' | dd of={NODE} bs=1 seek={at} conv=notrunc,fsync status=none; udevadm settle"
        ))
        .map(drop)
}

fn save_plan(machine: &Guest) -> Result<()> {
    machine
        .run_within(&format!("{AGENT} plan disks -o json >/root/plan"), AGENT_TIMEOUT)
        .map(drop)
}

fn apply_saved(machine: &Guest) -> Result<Output> {
    machine.sh_within(&format!("{AGENT} apply disks --plan /root/plan"), AGENT_TIMEOUT)
}

fn approve(machine: &Guest, who: &str, hash: &str) -> Result<Output> {
    machine.sh_within(
        &format!("{AGENT} disks approve {who} --evidence {hash}"),
        AGENT_TIMEOUT,
    )
}

/// The evidence of the one refusal, of this kind.
fn evidence(machine: &Guest, kind: &str) -> Result<String> {
    let refusal = kit::refused(machine, "data", kind)?;
    let hash = refusal["evidence"].as_str().context("no evidence")?;
    ensure!(hash.len() == 64, "{refusal:#}");
    Ok(hash.to_owned())
}

/// Another pass formats nothing: how often one was begun stays, and nothing is mounted.
fn refused_still(machine: &Guest, begun: usize) -> Result<()> {
    let output = kit::apply(machine)?;
    ensure!(output.code != 0, "{}", output.stdout);
    kit::not_mounted(machine, "/data")?;
    ensure!(
        kit::begun(machine, "data", "format")? == begun,
        "it was formatted: {}",
        output.stdout
    );
    Ok(())
}

fn made(machine: &Guest, begun: usize) -> Result<()> {
    ensure!(kit::mounted(machine, "/data")?.0 == "ext4");
    ensure!(kit::begun(machine, "data", "format")? == begun);
    kit::settled(machine)
}

#[test]
fn tier4_a_saved_plan_is_done_only_while_it_holds_and_an_approval_is_good_once() {
    play(
        "tier4_a_saved_plan_is_done_only_while_it_holds_and_an_approval_is_good_once",
        |scene| {
            let vm = kit::vm("verbs").disk(Disk::blank("data", DISK_BYTES).serial("data"));
            let machine = kit::guest(scene, &vm, DISKS)?;
            save_plan(&machine)?;
            put(&machine, "170", 41 * MIB)?;
            let stale = apply_saved(&machine)?;
            ensure!(
                stale.code == 1 && stale.stderr.contains("plan disks"),
                "a plan that holds no more is done: {stale:?}"
            );
            refused_still(&machine, 0)?;

            let unknown = evidence(&machine, "unknown-data")?;
            let guess = "0".repeat(64);
            ensure!(
                approve(&machine, "data", &guess)?.code != 0
                    && approve(&machine, "missing", &unknown)?.code != 0,
                "a guess is approved"
            );
            let approved = approve(&machine, "data", &unknown)?;
            ensure!(approved.code == 0, "{approved:?}");
            // Another byte is another disk to look at; without it, it is the one that was approved.
            put(&machine, "170", 7 * MIB)?;
            refused_still(&machine, 0)?;
            ensure!(evidence(&machine, "unknown-data")? != unknown);
            put(&machine, "000", 7 * MIB)?;
            save_plan(&machine)?;
            let done = apply_saved(&machine)?;
            ensure!(done.code == 0, "{done:?}");
            made(&machine, 1)?;

            // Blank once more: approved by its serial, that is good once, too.
            let wipe = format!("umount /data && dd if=/dev/zero of={NODE} bs=4M status=none; udevadm settle");
            machine.run(&wipe)?;
            refused_still(&machine, 1)?;
            let again = evidence(&machine, "blank-again")?;
            ensure!(
                approve(&machine, "data", &unknown)?.code != 0,
                "an old approval is taken"
            );
            let approved = approve(&machine, "data", &again)?;
            ensure!(approved.code == 0, "{approved:?}");
            kit::applied(&machine)?;
            made(&machine, 2)?;
            machine.run(&wipe)?;
            refused_still(&machine, 2)?;
            evidence(&machine, "blank-again").map(drop)
        },
    );
}
