//! Properties of every plan, for arbitrary settings, observations and journals.

use proptest::prelude::*;
use virtfleet_wire::settings::ProofKind;

use super::{arbitrary::worlds, world::World, *};
use crate::disks::{
    device::{Device, Use},
    journal::{Approval, Evidence, Progress},
    matching::ineligible,
    plan::FormatIntent,
    probe::{Left, Probe},
    wanted::Key,
};

/// Conditions for formatting, independent of the planner's implementation.
fn right_to_format(
    disk: &Wanted,
    device: &Device,
    intent: &FormatIntent,
    cleared: bool,
    world: &World,
) -> bool {
    let probe = &world.seen.probes[&disk.name];
    let entry = world.journal.entries.iter().find(|entry| entry.name == disk.name);
    let approved = |hash: &String| {
        world
            .journal
            .approvals
            .iter()
            .any(|approval| approval.name == disk.name && approval.hash == *hash && hash.len() == 64)
    };
    let intended = entry.filter(|entry| {
        let given = matches!(&intent.key, Key::Uuid(uuid) if entry.uuid == *uuid || entry.luks_uuid.as_ref() == Some(uuid));
        entry.progress == Progress::Intended && (entry.key == intent.key || given) && entry.device.size <= device.id.size
    });
    match (probe, &intent.evidence) {
        _ if disk.shared => false,
        (Probe::Unknown(_), _) => false,
        (Probe::HasData(content), _) if !content.also.is_empty() => false,
        (Probe::Blank(blank), Evidence::Blank(evidence)) => {
            let asked = disk.proof == ProofKind::Sampled || blank.proof == ProofKind::Full;
            !cleared
                && blank == evidence
                && asked
                && (entry.is_none() || disk.ephemeral || intended.is_some())
        }
        (Probe::Blank(_), Evidence::Approved { hash, .. }) => !cleared && approved(hash),
        (Probe::HasData(content), Evidence::Approved { hash, .. }) if !cleared => {
            content.kind.is_empty() && approved(hash)
        }
        (Probe::HasData(content), evidence) => {
            let Some(entry) = intended.filter(|entry| cleared && entry.evidence == *evidence) else {
                return false;
            };
            let expected = if disk.encryption.is_some() {
                entry.luks_uuid.as_ref()
            } else {
                Some(&entry.uuid)
            };
            let ours = content.uuid.as_ref() == expected
                && content.complete == Some(false)
                && !content.kind.is_empty();
            content.left == Some(Left::Tool) && (ours || content.kind.is_empty())
        }
        #[allow(unreachable_patterns, reason = "evidence of other kinds is none for a format")]
        _ => false,
    }
}

fn check_destruction(wanted: &[Wanted], world: &World) -> Result<(), TestCaseError> {
    let plan = world.plan(wanted);
    let mut touched = BTreeSet::new();
    for disk in &plan.disks {
        let declared = wanted.iter().find(|declared| declared.name == disk.name).unwrap();
        if !disk.steps.iter().any(DiskStep::destroys) {
            continue;
        }
        prop_assert!(disk.refusals.is_empty());
        let id = disk.device.clone().unwrap();
        prop_assert!(touched.insert(id.name.clone()), "two disks write to {}", id.name);
        let device = world.seen.devices.iter().find(|device| device.id == id).unwrap();
        prop_assert_eq!(ineligible(device), None);
        prop_assert!(!device.came_later || declared.serial.is_some());
        prop_assert!(!world.seen.vm_uuid.is_empty());
        prop_assert!(!world.journal.broken.iter().any(|(name, _)| *name == disk.name));
        let cleared = matches!(disk.steps[0], DiskStep::ClearUnfinished(_));
        let encrypts = disk
            .steps
            .iter()
            .any(|step| matches!(step, DiskStep::Encrypt { .. }));
        for (at, step) in disk.steps.iter().enumerate() {
            match step {
                DiskStep::ClearUnfinished(intent)
                | DiskStep::Format(intent)
                | DiskStep::Encrypt { intent, .. } => {
                    prop_assert!(at <= usize::from(cleared), "it comes first");
                    prop_assert_eq!(&intent.device, &id);
                    prop_assert!(
                        right_to_format(declared, device, intent, cleared, world),
                        "{:?}",
                        intent
                    );
                    let others = device.uses.iter().filter(
                        |used| !matches!(used, Use::Mounted(at) if at.starts_with("/run/virtfleet/seed/")),
                    );
                    prop_assert_eq!(others.count(), 0);
                }
                DiskStep::FormatMapped { mapping, intent } => {
                    prop_assert_eq!(&intent.device, &id);
                    prop_assert_eq!(mapping, &format!("virtfleet-{}", disk.name));
                    let entry = world.journal.entries.iter().find(|entry| entry.name == disk.name);
                    let unused = entry.is_some_and(|entry| {
                        entry.progress <= Progress::Encrypted && entry.luks_uuid.is_some()
                    });
                    prop_assert!(encrypts || unused);
                    if let Some(open) = world.seen.mappings.get(mapping) {
                        let proven = match &open.probe {
                            Probe::Blank(_) => true,
                            Probe::HasData(content) => content.left == Some(Left::Tool),
                            Probe::Unknown(_) => false,
                        };
                        prop_assert!(proven, "{:?}", open.probe);
                        prop_assert_eq!(
                            entry.and_then(|entry| entry.luks_uuid.as_ref()),
                            Some(&open.luks_uuid)
                        );
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Everything is as requested or refused, after a run for each thing that only becomes visible by
/// the previous one: the content of a container, and errors in the journal.
fn check_arrival(wanted: &[Wanted], world: &World) -> Result<(), TestCaseError> {
    let mut world = world.clone();
    let containers = wanted.iter().any(|disk| disk.encryption.is_some());
    let first = world.plan(wanted);
    // An entry of another disk, or with the UUID that belongs to another name: the first run
    // corrects it, and the next ones follow.
    let wrong = world.journal.entries.iter().any(|entry| {
        let disk = first.disks.iter().find(|disk| disk.name == entry.name);
        let moved = disk.is_some_and(|disk| disk.device.as_ref() != Some(&entry.device));
        let mut others = wanted.iter().filter(|disk| disk.name != entry.name);
        moved
            || others.any(|disk| {
                let given = [fs_uuid(&disk.name), luks_uuid(&disk.name)];
                given.contains(&entry.uuid)
                    || entry.luks_uuid.as_ref().is_some_and(|uuid| given.contains(uuid))
            })
    });
    let passes = if containers { 3 } else { 1 + usize::from(wrong) };
    for _ in 0..passes {
        let plan = world.plan(wanted);
        world.apply(wanted, &plan);
    }
    let plan = world.plan(wanted);
    prop_assert!(plan.is_empty(), "pending: {:?}", plan);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1000), ..ProptestConfig::default() })]

    #[test]
    fn planning_is_pure((wanted, world) in worlds()) {
        let before = (world.seen.clone(), world.journal.clone());
        let plan = world.plan(&wanted);
        prop_assert_eq!(&plan, &world.plan(&wanted));
        prop_assert_eq!(before, (world.seen.clone(), world.journal.clone()));
        prop_assert_eq!(plan.disks.len(), wanted.len());
        for (disk, declared) in plan.disks.iter().zip(&wanted) {
            prop_assert_eq!(&disk.name, &declared.name);
        }
        let text = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }

    #[test]
    fn only_blank_own_or_approved_disks_are_formatted((wanted, world) in worlds()) {
        check_destruction(&wanted, &world)?;
    }

    /// Any other content of a disk that was matched by size and order, or by a UUID from udev,
    /// belongs to someone else.
    #[test]
    fn positional_match_mounts_only_own_filesystems((wanted, world) in worlds()) {
        let plan = world.plan(&wanted);
        for (disk, declared) in plan.disks.iter().zip(&wanted).filter(|(_, declared)| declared.is_positional()) {
            let entry = world.journal.entries.iter().find(|entry| entry.name == disk.name);
            for step in &disk.steps {
                let (DiskStep::Mount { uuid, .. } | DiskStep::SwapOn { uuid, .. } | DiskStep::Open { luks_uuid: uuid, .. }) = step else {
                    continue;
                };
                let inside = declared.encryption.is_some() && !matches!(step, DiskStep::Open { .. });
                let journaled = entry.filter(|entry| entry.uuid == *uuid || entry.luks_uuid.as_ref() == Some(uuid));
                let ours = [fs_uuid(&disk.name), luks_uuid(&disk.name)].contains(uuid) || journaled.is_some();
                // For an own container, its content.
                prop_assert!(ours || inside, "{:?}", disk);
            }
        }
    }

    #[test]
    fn plan_is_empty_after_it_was_applied((wanted, world) in worlds()) {
        check_arrival(&wanted, &world)?;
    }

    /// No approval permits formatting of recognised or unreadable content.
    #[test]
    fn approvals_never_format_known_data((wanted, mut world) in worlds()) {
        for disk in world.plan(&wanted).disks {
            for refusal in disk.refusals {
                world.journal.approvals.push(Approval { name: disk.name.clone(), hash: refusal.evidence, at_ns: 2, facts: Vec::new() });
            }
        }
        check_destruction(&wanted, &world)?;
        check_arrival(&wanted, &world)?;
    }
}
