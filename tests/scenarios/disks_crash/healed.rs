//! A mkfs that is killed while it writes: the next run completes, or refuses.

use super::*;

/// What became of tools that were killed while they wrote.
#[derive(Debug, Default)]
struct Healed {
    killed: usize,
    ready: usize,
    /// The tool had written nothing, so the journal was restored.
    restored: usize,
    cleared: usize,
    refused: Vec<String>,
}

/// Kills the tool of a run after `pause` microseconds, and lets the next run go on.
fn killed_inside(case: &Case<'_>, pause: u64, count: &mut Healed) -> Result<()> {
    let name = &case.settings.name;
    let script = format!(
        "(while ! p=$(pidof mkfs.{}); do :; done; sleep 0.{pause:06}; kill -KILL $p) \
         </dev/null >/dev/null 2>&1 & echo $! > /run/killer",
        case.settings.filesystem.word()
    );
    let outcome = case.order(Order {
        script_at: Some((format!("{name} audited"), script)),
        ..Order::default()
    })?;
    // If it was too late for this mkfs, it must not meet the next one.
    case.sh("kill -KILL $(cat /run/killer) 2>/dev/null || true")?;
    if outcome.standing(name) == "ready" {
        return Ok(());
    }
    ensure!(
        outcome.error(name).contains("signal 9"),
        "{}",
        outcome.state["disks"]
    );
    count.killed += 1;
    count.restored += usize::from(!case.has_entry());
    let outcome = case.run()?;
    if outcome.standing(name) == "ready" {
        count.ready += 1;
        let audit = case.stage.audit(name)?;
        count.cleared += usize::from(audit.iter().any(|line| line == "done clear-unfinished"));
    } else {
        let refusal = &outcome.state["disks"][0]["refusals"][0]["message"];
        count.refused.push(refusal.to_string());
    }
    Ok(())
}

/// `VIRTFLEET_MKFS_KILLS` says how many runs of each kind there are.
#[test]
fn tier2_a_mkfs_that_was_killed_while_it_wrote_heals_by_itself() {
    let test = "tier2_a_mkfs_that_was_killed_while_it_wrote_heals_by_itself";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    let rounds = std::env::var("VIRTFLEET_MKFS_KILLS").ok();
    let rounds: usize = rounds.and_then(|text| text.parse().ok()).unwrap_or(2);
    let mut random = fastrand::Rng::new();
    for (kind, longest) in [
        (DiskFilesystem::Ext4, 15_000),
        (DiskFilesystem::Xfs, 50_000),
        (DiskFilesystem::Btrfs, 120_000),
    ] {
        let mut count = Healed::default();
        for round in 0..rounds {
            let mut work = || -> Result<()> {
                let case = Case::new(&stage, &format!("h-{}-{round}", kind.word()), kind)?;
                killed_inside(&case, random.u64(..longest), &mut count)?;
                case.end()
            };
            work().context(kind.word()).unwrap();
        }
        println!("{}: {rounds} runs, {count:?}", kind.word());
        assert!(count.refused.is_empty(), "{count:?}");
    }
}
