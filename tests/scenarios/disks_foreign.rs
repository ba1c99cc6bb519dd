//! Disks with something on them: whatever it is, none counts as blank, and each refusal says why.

mod bytes;
mod several;
mod table;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use virtfleet_agent_core::disks::{Content, Probe, Region, regions};
use virtfleet_agent_host::Roots;
use virtfleet_tests::{
    loops::{self, Loop, disks},
    process::Launch,
    scratch, skip,
};
use virtfleet_wire::settings::ProofKind;

use table::{FOREIGN, Foreign, Found, Make, PROGRAMS};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const DEADLINE: Duration = Duration::from_mins(2);

fn needs() -> Result<()> {
    loops::needs()?;
    PROGRAMS.iter().try_for_each(|name| skip::program(name).map(drop))
}

/// What the agent finds on it.
fn look(device: &Loop, proof: ProofKind) -> Result<Probe> {
    let roots = Roots::default();
    Ok(disks(&roots).probe(&device.device()?, proof, &mut |_, _| {}))
}

fn data(probe: Probe) -> Result<Content> {
    match probe {
        Probe::HasData(content) => Ok(content),
        other => bail!("{other:?}"),
    }
}

fn put(foreign: &Foreign, device: &Loop, folder: &std::path::Path, size: u64) -> Result<()> {
    match &foreign.make {
        Make::Sh(script) => {
            let output = Launch::new("sh")
                .args(["-ec", script])
                .env("D", device.node())
                .env("T", folder)
                .output(DEADLINE)?;
            ensure!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Make::Bytes(make) => {
            for (offset, bytes) in make(size) {
                device.write(offset, &bytes)?;
            }
        }
    }
    Ok(())
}

fn judge(foreign: &Foreign, content: &Content) -> Result<()> {
    match foreign.found {
        Found::Kind(kind) => {
            let kinds: Vec<&str> = [&content.kind]
                .into_iter()
                .chain(&content.also)
                .map(String::as_str)
                .collect();
            ensure!(kinds.contains(&kind), "found {kinds:?} and not {kind}");
        }
        Found::Bytes(least) => {
            ensure!(
                !content.is_known(),
                "found {} where the content must stay unknown",
                content.kind
            );
            let first = content
                .first_byte
                .context("without the place of its first byte")?;
            ensure!(first >= least, "first byte at {first}");
        }
        Found::Any => {
            ensure!(
                content.is_known() || content.first_byte.is_some(),
                "no word of why"
            );
        }
    }
    ensure!(content.digest.len() == 64, "digest {:?}", content.digest);
    Ok(())
}

/// Every kind on a disk of that size.
fn all(size: u64) -> Result<()> {
    let folder = scratch::marked()?;
    table::furnish(folder.path())?;
    let begun = Instant::now();
    let (mut count, mut failed) = (0, Vec::new());
    for foreign in FOREIGN {
        let (least, most) = foreign.sizes;
        if size < least * MIB || size / MIB > most {
            continue;
        }
        count += 1;
        let device = Loop::blank(folder.path(), "disk", size)?;
        let result = put(foreign, &device, folder.path(), size)
            .context("cannot be made")
            .and_then(|()| data(look(&device, ProofKind::Sampled)?))
            .and_then(|content| judge(foreign, &content).map(|()| content));
        match result {
            Ok(content) => println!(
                "{:>5} MiB  {:<36} {} {}{}",
                size / MIB,
                foreign.name,
                if content.is_known() {
                    content.kind.as_str()
                } else {
                    "unknown bytes"
                },
                content.also.join(" "),
                content
                    .first_byte
                    .map_or(String::new(), |at| format!(" from byte {at}")),
            ),
            Err(error) => failed.push(format!("{}: {error:#}", foreign.name)),
        }
    }
    println!("{count} kinds on {} MiB in {:?}", size / MIB, begun.elapsed());
    ensure!(
        failed.is_empty(),
        "{} of {count}:\n{}",
        failed.len(),
        failed.join("\n")
    );
    ensure!(count >= 70, "only {count} kinds");
    Ok(())
}

fn run(test: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    skip::need(TIER, test, needs())?.map_or(Ok(()), |()| work())
}

#[test]
fn tier2_nothing_foreign_is_blank_on_64_mib() {
    run("tier2_nothing_foreign_is_blank_on_64_mib", || all(64 * MIB)).unwrap();
}

#[test]
fn tier2_nothing_foreign_is_blank_on_300_mib() {
    run("tier2_nothing_foreign_is_blank_on_300_mib", || all(300 * MIB)).unwrap();
}

#[test]
fn tier2_nothing_foreign_is_blank_on_3_gib() {
    run("tier2_nothing_foreign_is_blank_on_3_gib", || all(3072 * MIB)).unwrap();
}

/// One byte, put where the promise says that it is seen, and taken away again.
fn single(device: &Loop, offset: u64, proof: ProofKind) -> Result<()> {
    device.write(offset, &[1])?;
    let content = data(look(device, proof)?).with_context(|| format!("a byte at {offset}"))?;
    ensure!(
        content.first_byte == Some(offset),
        "a byte at {offset}: found at {:?}",
        content.first_byte
    );
    device.write(offset, &[0])
}

#[test]
fn tier2_one_byte_at_the_edges_of_what_is_promised_is_seen() {
    run("tier2_one_byte_at_the_edges_of_what_is_promised_is_seen", || {
        let folder = scratch::marked()?;
        for size in [300 * MIB, 3072 * MIB + 512] {
            let device = Loop::blank(folder.path(), "disk", size)?;
            let parts = regions::regions(size, ProofKind::Sampled);
            let step = (parts.len() / 12).max(1);
            let edges = parts.iter().step_by(step).chain(parts.last());
            for Region { offset, length } in edges {
                single(&device, *offset, ProofKind::Sampled)?;
                single(&device, offset + length - 1, ProofKind::Sampled)?;
            }
            let blank = look(&device, ProofKind::Sampled)?;
            ensure!(matches!(blank, Probe::Blank(_)), "{blank:?}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn tier2_one_byte_anywhere_is_seen_by_the_full_proof() {
    run("tier2_one_byte_anywhere_is_seen_by_the_full_proof", || {
        let folder = scratch::marked()?;
        let size = 700 * MIB;
        let device = Loop::blank(folder.path(), "disk", size)?;
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..12 {
            single(&device, random.u64(..size), ProofKind::Full)?;
        }
        Ok(())
    })
    .unwrap();
}
