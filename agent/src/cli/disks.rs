//! The verbs of secondary disks: their plan, `apply disks`, and `disks` with its own.

use std::{path::Path, time::Duration};

use anyhow::anyhow;
use virtfleet_agent_core::disks::{
    Plan, Refusal, RefusalKind, Step,
    binds::mount_point,
    state::{DiskState, DisksState, FORMAT, Standing},
    units,
};
use virtfleet_agent_host::{
    Commands as _, Lock, LockError, Roots, SystemCommands, Tool, disk_mounts, is_root, lock_waiting,
};
use virtfleet_agent_provision::{
    LOCK_FILE, PATIENCE,
    disks::{Engine, Machine, approve, check, failed, unusable},
};
use virtfleet_agent_state::{DISKS_STATE, settings};
use virtfleet_runtime::exit::Code;
use virtfleet_wire::settings::{DiskFilesystem, DiskSettings};

use super::{Args, plan::read_plan, print, verbs::Failure};
use crate::output::Output;

/// What the verb `disks` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisksVerb {
    /// How the declared disks stand.
    List(Output),
    /// Takes a person's word on a refusal: name or serial, evidence.
    Approve(String, String),
    /// The gate: whether the required disks are in place.
    Check,
    /// Gives unused blocks back, for the disks that ask for it.
    Trim,
}

/// How long giving blocks back may take.
const TRIM: Duration = Duration::from_mins(30);

/// The plan, as `apply disks` would do it.
pub(super) fn plan(args: &Args) -> Result<Plan, Failure> {
    let (declared, unusable) = declared(args);
    let machine = Machine::of(&args.roots);
    let observed = machine.engine(&args.roots, unusable.as_deref()).plan(&declared)?;
    Ok(observed.plan)
}

/// What a plan comes to as an exit code: 3 something is refused, 2 something is to be done.
pub(super) fn code(plan: &Plan) -> Code {
    if plan.disks.iter().any(|disk| !disk.refusals.is_empty()) {
        Code::Refused
    } else if plan.is_empty() {
        Code::Ok
    } else {
        Code::Changes
    }
}

/// Does what the plan says: with a file, only if the plan is still the one in it.
pub(super) fn apply(
    args: &Args,
    file: Option<&Path>,
    output: Output,
    wait: Option<Duration>,
) -> Result<Code, Failure> {
    root("apply disks")?;
    let expected: Option<Plan> = file.map(|file| read_plan(file, "disks")).transpose()?;
    let lock = turn(args, wait, "apply disks")?;
    // Not before: what is declared may change while another pass is waited for.
    let (declared, unusable) = declared(args);
    let machine = Machine::of(&args.roots);
    let engine = Engine {
        witness: &lock,
        ..machine.engine(&args.roots, unusable.as_deref())
    };
    let Some(passed) = engine.apply(&declared, true, expected.as_ref())? else {
        return Err(anyhow::anyhow!(
            "what was found has changed since that plan was made, and nothing was done; look again: virtfleet-agent plan disks"
        )
        .into());
    };
    print::text(&output.render(&passed.state, |state| {
        format!("{}\n{}", state.summary(), list(&state.disks))
    })?)?;
    Ok(if failed(&passed.state) {
        Code::Failure
    } else if passed.state.disks.iter().any(|disk| !disk.refusals.is_empty()) {
        Code::Refused
    } else {
        Code::Ok
    })
}

/// Waits until no other pass is under way; who waits is told for whom.
pub(super) fn turn(args: &Args, wait: Option<Duration>, doing: &str) -> Result<Lock, LockError> {
    let path = args.roots.root(LOCK_FILE);
    lock_waiting(&path, wait.unwrap_or(PATIENCE), doing, &mut print::complain)
}

/// The verb `disks`.
pub(super) fn disks(args: &Args, verb: &DisksVerb) -> Result<Code, Failure> {
    let (declared, unusable) = declared(args);
    let machine = Machine::of(&args.roots);
    match verb {
        DisksVerb::List(output) => {
            if declared.is_empty() && unusable.is_none() {
                let nothing = DisksState {
                    v: FORMAT,
                    ..DisksState::default()
                };
                let none = || "no disk is declared; docs/disks.md has an example\n".to_owned();
                print::text(&output.render(&nothing, |_| none())?)?;
                return Ok(Code::Ok);
            }
            let state = DISKS_STATE.read(&args.roots, &machine.boot_id).map_err(|error| {
                if error.is_absent() {
                    anyhow!(
                        "no pass has looked at the disks in this boot; as root: virtfleet-agent apply disks"
                    )
                } else {
                    let what = format!("{DISKS_STATE} cannot be used; as root: virtfleet-agent apply disks");
                    anyhow::Error::new(error).context(what)
                }
            })?;
            print::text(&output.render(&state, |state| list(&state.disks))?)?;
            Ok(if failed(&state) { Code::Failure } else { Code::Ok })
        }
        DisksVerb::Approve(who, evidence) => {
            root("disks approve")?;
            let _lock = turn(args, None, "disks approve")?;
            let name = approve(
                &machine.engine(&args.roots, unusable.as_deref()),
                &declared,
                who,
                evidence,
            )?;
            print::text(&format!(
                "approved, once, for disk {name}; next: virtfleet-agent plan disks, then virtfleet-agent apply disks\n"
            ))?;
            Ok(Code::Ok)
        }
        DisksVerb::Check => {
            let count = check(&args.roots, &machine.boot_id, &declared, unusable.as_deref())?;
            print::text(&match count {
                0 => format!("no disk is required, or {} is set\n", units::GATE_OFF),
                count => format!("in place: all {count} required disks\n"),
            })?;
            Ok(Code::Ok)
        }
        DisksVerb::Trim => trim(&args.roots, &declared),
    }
}

fn trim(roots: &Roots, declared: &[DiskSettings]) -> Result<Code, Failure> {
    root("disks trim")?;
    let mounts = disk_mounts(roots)?;
    let mut failures = Vec::new();
    for disk in declared
        .iter()
        .filter(|disk| disk.discard && disk.filesystem != DiskFilesystem::Swap)
    {
        let Some(path) = &mount_point(disk) else { continue };
        if !mounts.iter().any(|mount| mount.mount_point == *path) {
            continue;
        }
        let tool = Tool::new("fstrim")
            .args(["--verbose", "--"])
            .arg(roots.root(path));
        match SystemCommands.check(&tool.deadline(TRIM)) {
            Ok(done) => print::text(&done.stdout)?,
            Err(error) => failures.push(format!("disk {}: {error}", disk.name)),
        }
    }
    if failures.is_empty() {
        Ok(Code::Ok)
    } else {
        Err(anyhow::anyhow!(failures.join("; ")).into())
    }
}

/// The declared disks, and why these are not known.
fn declared(args: &Args) -> (Vec<DiskSettings>, Option<String>) {
    let settings = settings::load(&args.roots, args.config.as_deref());
    let unusable = unusable(&args.roots, &settings);
    (settings.config.disks, unusable)
}

fn root(verb: &str) -> Result<(), Failure> {
    if is_root() {
        Ok(())
    } else {
        Err(anyhow::anyhow!("only root can look at disks; sudo virtfleet-agent {verb}").into())
    }
}

/// A plan for people.
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
        push(&mut text, "nothing is declared, and nothing is to be done");
    }
    text
}

/// The facts that tell a person something. Whether a disk with wrong settings is required is there for programs.
fn shown(refusal: &Refusal) -> impl Iterator<Item = &(String, String)> {
    let internal = refusal.kind == RefusalKind::Settings;
    let facts = refusal.facts.iter();
    facts.filter(move |(name, _)| !(internal && name == "required"))
}

pub(super) fn push(text: &mut String, line: &str) {
    // What is on a disk, its label for example, must not speak to the terminal.
    let plain = line.replace(char::is_control, " ");
    text.push_str(&plain);
    text.push('\n');
}

fn line(step: &Step) -> String {
    let word = step.word();
    match step {
        Step::ClearUnfinished(intent) => {
            format!(
                "{word}: put zeros over what our own {} has begun",
                intent.filesystem
            )
        }
        Step::EraseClone(intent) => {
            let proof = &intent.proof;
            let how = if intent.resume { "go on to erase" } else { "erase" };
            format!(
                "{word}: {how} {} partitions in {} bytes, an untouched clone of {}'s image (GUID {})",
                proof.partitions.len(),
                proof.image_bytes,
                proof.root,
                proof.disk_guid
            )
        }
        Step::Format(intent) => format!("{word}: {} with UUID {}", intent.filesystem, intent.uuid),
        Step::Encrypt { intent, .. } => format!("{word}: LUKS2 with UUID {}", intent.uuid),
        Step::Open { mapping, .. } => format!("{word}: as /dev/mapper/{mapping}"),
        Step::FormatMapped { mapping, intent } => {
            format!(
                "{word}: {} with UUID {} in /dev/mapper/{mapping}",
                intent.filesystem, intent.uuid
            )
        }
        Step::Seed { mount_point, .. } => format!("{word}: copy {mount_point} to it and compare"),
        Step::WriteFile { path, .. } | Step::RemoveFile { path } | Step::MakeMountPoint { path } => {
            format!("{word}: {path}")
        }
        Step::Mount {
            mount_point, uuid, ..
        } => format!("{word}: UUID {uuid} at {mount_point}"),
        Step::MakeDirectory {
            directory,
            path,
            copy,
            ..
        } => {
            let how = if *copy {
                "copied from it and compared"
            } else {
                "like the one that lies there"
            };
            format!("{word}: {directory} for {path}, {how}, where it is not on the disk yet")
        }
        Step::Bind { directory, path, .. } => format!("{word}: {directory} at {path}"),
        Step::RememberBind { directory, path } => format!("{word}: that {directory} is in use at {path}"),
        Step::SwapOn { uuid, .. } => format!("{word}: UUID {uuid}"),
        Step::Remember { uuid, .. } => {
            format!("{word}: that UUID {uuid} is in use, which somebody else has put in its place")
        }
        Step::Remount {
            mount_point, options, ..
        } => format!("{word}: {mount_point} with {}", options.join(",")),
        Step::GrowMapping { mapping, .. } => format!("{word}: /dev/mapper/{mapping}"),
        Step::Grow {
            mount_point,
            from,
            to,
            ..
        } => format!("{word}: {mount_point}, {from} to {to} bytes"),
        Step::Own { mount_point, .. } => format!("{word}: {mount_point}"),
    }
}

/// A table.
fn list(disks: &[DiskState]) -> String {
    let head = ["NAME", "STATE", "DEVICE", "SIZE", "FILESYSTEM", "PLACE", "WHY"].map(str::to_owned);
    let rows = disks.iter().map(|disk| {
        let or = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
        [
            disk.name.clone(),
            disk.standing.word().to_owned(),
            or(&disk.device),
            or(&size(disk.size_bytes)),
            or(&disk.filesystem),
            or(&disk.places_text()),
            match disk.standing {
                Standing::Ready => or(&disk.reason()),
                _ => format!("{}; next: {}", disk.reason(), disk.next()),
            },
        ]
    });
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

/// Rows with their columns aligned; the first is the head.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        push(&mut text, cells.join("  ").trim_end());
    }
    text
}

/// Bytes in the largest unit that divides them to something of at least one, e.g. `100Gi`.
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
    fn a_plan_says_what_a_person_needs_and_how_it_is_done() {
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
        plan.disks = vec![of(Vec::new(), vec![Step::MakeMountPoint { path }])];
        assert!(text(&plan).ends_with("to do this, as root: virtfleet-agent apply disks\n"));
    }

    #[test]
    fn the_table_says_why_and_what_next() {
        let disks = [
            DiskState {
                name: "data".into(),
                standing: Standing::Ready,
                device: "vdb".into(),
                size_bytes: 1 << 30,
                filesystem: "xfs".into(),
                mount_point: "/data".into(),
                ..DiskState::default()
            },
            DiskState {
                name: "logs".into(),
                standing: Standing::Failed,
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
