//! Disks as text: plans with their steps, and the table of the declared disks.

use virtfleet_agent_core::disks::{
    DiskStep, Plan, Refusal, RefusalKind,
    state::{DiskState, DiskStatus},
};

use super::rows::{Cell, push, rows};

pub(super) fn text(plan: &Plan) -> String {
    let mut text = String::new();
    for disk in &plan.disks {
        let device = disk.device.as_ref().map_or_else(
            || "no device".to_owned(),
            |device| format!("/dev/{}, {}", device.name, size(device.size)),
        );
        let key = disk
            .key
            .as_ref()
            .map(|key| format!(", by {key}"))
            .unwrap_or_default();
        push(&mut text, &format!("disk {} ({device}{key})", disk.name));
        for step in &disk.steps {
            push(&mut text, &format!("  {}", line(step)));
        }
        for refusal in &disk.refusals {
            push(
                &mut text,
                &format!("  refused ({}): {}", refusal.kind.word(), refusal.message),
            );
            for (name, fact) in shown(refusal) {
                push(&mut text, &format!("    {name}: {fact}"));
            }
            if !refusal.evidence.is_empty() {
                push(&mut text, &format!("    evidence: {}", refusal.evidence));
            }
            push(&mut text, &format!("    next: {}", refusal.remedy));
        }
        for note in &disk.notes {
            push(&mut text, &format!("  note: {note}"));
        }
        if disk.steps.is_empty() && disk.refusals.is_empty() {
            push(&mut text, "  nothing to do");
        }
    }
    for step in &plan.common {
        push(&mut text, &line(step));
    }
    if !plan.is_empty() {
        push(&mut text, "to do this, as root: virtfleet-agent apply disks");
    }
    if plan.disks.is_empty() && plan.common.is_empty() {
        push(&mut text, "no disk is declared, and there is nothing to do");
    }
    text
}

/// The facts of a refusal that are shown to admins. Whether a disk with invalid settings is
/// required is only for programs.
fn shown(refusal: &Refusal) -> impl Iterator<Item = &(String, String)> {
    let internal = refusal.kind == RefusalKind::Settings;
    let facts = refusal.facts.iter();
    facts.filter(move |(name, _)| !(internal && name == "required"))
}

fn line(step: &DiskStep) -> String {
    let word = step.word();
    match step {
        DiskStep::ClearUnfinished(intent) => {
            format!(
                "{word}: overwrite the unfinished {} of the agent with zeros",
                intent.filesystem
            )
        }
        DiskStep::EraseClone(intent) => {
            let proof = &intent.proof;
            let how = if intent.resume {
                "continue to erase"
            } else {
                "erase"
            };
            format!(
                "{word}: {how} {} partitions in {} bytes, an untouched clone of {}'s image (GUID {})",
                proof.partitions.len(),
                proof.image_bytes,
                proof.root,
                proof.disk_guid
            )
        }
        DiskStep::Format(intent) => format!("{word}: {} with UUID {}", intent.filesystem, intent.uuid),
        DiskStep::Encrypt { intent, .. } => format!("{word}: LUKS2 with UUID {}", intent.uuid),
        DiskStep::Open { mapping, .. } => format!("{word}: as /dev/mapper/{mapping}"),
        DiskStep::FormatMapped { mapping, intent } => {
            format!(
                "{word}: {} with UUID {} in /dev/mapper/{mapping}",
                intent.filesystem, intent.uuid
            )
        }
        DiskStep::Seed { mount_point, .. } => format!("{word}: copy {mount_point} to it and compare"),
        DiskStep::WriteFile { path, .. }
        | DiskStep::RemoveFile { path }
        | DiskStep::MakeMountPoint { path } => {
            format!("{word}: {path}")
        }
        DiskStep::Mount {
            mount_point, uuid, ..
        } => format!("{word}: UUID {uuid} at {mount_point}"),
        DiskStep::MakeDirectory {
            directory,
            path,
            copy,
            ..
        } => {
            let how = if *copy {
                "copied from it and compared"
            } else {
                "with the owner and mode of the one there"
            };
            format!("{word}: {directory} for {path}, {how}, unless it is already on the disk")
        }
        DiskStep::Bind { directory, path, .. } => format!("{word}: {directory} at {path}"),
        DiskStep::RecordBind { directory, path } => format!("{word}: that {directory} is in use at {path}"),
        DiskStep::SwapOn { uuid, .. } => format!("{word}: UUID {uuid}"),
        DiskStep::RecordUse { uuid, .. } => {
            format!("{word}: that UUID {uuid} is in use, which was mounted by something else")
        }
        DiskStep::Remount {
            mount_point, options, ..
        } => format!("{word}: {mount_point} with {}", options.join(",")),
        DiskStep::GrowMapping { mapping, .. } => format!("{word}: /dev/mapper/{mapping}"),
        DiskStep::Grow {
            mount_point,
            from,
            to,
            ..
        } => format!("{word}: {mount_point}, {from} to {to} bytes"),
        DiskStep::Own { mount_point, .. } => format!("{word}: {mount_point}"),
    }
}

/// The table of the declared disks.
pub(super) fn list(disks: &[DiskState]) -> String {
    let head = ["NAME", "STATE", "DEVICE", "SIZE", "FILESYSTEM", "PLACE", "WHY"];
    let head: Vec<Cell> = head.map(Cell::from).into();
    let each = disks.iter().map(|disk| {
        let or = |text: &str| Cell::from(if text.is_empty() { "-" } else { text });
        vec![
            disk.name.clone().into(),
            disk.standing.word().into(),
            or(&disk.device),
            or(&size(disk.size_bytes)),
            or(&disk.filesystem),
            or(&disk.places_text()),
            match disk.standing {
                DiskStatus::Ready => or(&disk.reason()),
                _ => format!("{}; next: {}", disk.reason(), disk.next()).into(),
            },
        ]
    });
    rows(0, &std::iter::once(head).chain(each).collect::<Vec<_>>())
}

/// Bytes in the largest unit of which they are at least one, e.g. `100Gi`.
fn size(bytes: u64) -> String {
    if bytes == 0 {
        return String::new();
    }
    let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let fitting = units.iter().find(|(shift, _)| bytes >> shift > 0);
    fitting.map_or_else(
        || bytes.to_string(),
        |(shift, unit)| {
            let tenths = (bytes >> (shift - 10)) * 10 / 1024;
            if tenths.is_multiple_of(10) {
                format!("{}{unit}", tenths / 10)
            } else {
                format!("{}.{}{unit}", tenths / 10, tenths % 10)
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::disks::{DevNumber, DeviceId, DiskPlan};

    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, ""),
            (512, "512"),
            (100 << 30, "100Gi"),
            (3 << 29, "1.5Gi"),
            ((100 << 30) + 512, "100Gi"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn a_plan_names_refusals_and_the_next_command() {
        let refusal = |kind, facts| Refusal::new(kind, None, "because", "do this", facts);
        let of = |refusals, steps| DiskPlan {
            name: "data".into(),
            key: None,
            device: Some(DeviceId {
                name: "vdb".into(),
                number: DevNumber {
                    major: 253,
                    minor: 16,
                },
                diskseq: None,
                size: 8 << 30,
                serial: None,
                partition: None,
            }),
            steps,
            refusals,
            notes: Vec::new(),
        };
        let refused = of(
            vec![
                refusal(RefusalKind::Settings, vec![("required", "false".to_owned())]),
                refusal(RefusalKind::InUse, vec![("use", "mounted".to_owned())]),
            ],
            Vec::new(),
        );
        let mut plan = Plan {
            disks: vec![refused],
            common: Vec::new(),
        };
        assert_eq!(
            text(&plan),
            "disk data (/dev/vdb, 8Gi)\n  refused (settings): because\n    next: do this\n  refused (in-use): because\n    use: mounted\n    \
             next: do this\n"
        );
        let path = "/srv/data".to_owned();
        plan.disks = vec![of(Vec::new(), vec![DiskStep::MakeMountPoint { path }])];
        assert!(text(&plan).ends_with("to do this, as root: virtfleet-agent apply disks\n"));
    }

    #[test]
    fn the_table_has_reasons_and_next_commands() {
        let disks = [
            DiskState {
                name: "data".into(),
                standing: DiskStatus::Ready,
                device: "vdb".into(),
                size_bytes: 1 << 30,
                filesystem: "xfs".into(),
                mount_point: "/data".into(),
                ..DiskState::default()
            },
            DiskState {
                name: "logs".into(),
                standing: DiskStatus::Failed,
                error: Some("mount: no\u{1b}[31m".into()),
                ..DiskState::default()
            },
        ];
        let text = list(&disks);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1], "data  ready   vdb     1Gi   xfs         /data  -");
        assert!(
            lines[2].contains("mount: no [31m; next: journalctl"),
            "{}",
            lines[2]
        );
    }
}
