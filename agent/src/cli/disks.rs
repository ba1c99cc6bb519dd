//! The verbs of secondary disks: their plan, `apply disks`, and `disks` with its subcommands.

use std::{path::Path, time::Duration};

use anyhow::anyhow;
use virtfleet_agent_core::disks::{
    Plan,
    binds::mount_point,
    state::{DisksState, FORMAT},
    units,
};
use virtfleet_agent_host::{Commands as _, Roots, SystemCommands, Tool, disk_mounts, is_root};
use virtfleet_agent_provision::{
    BootIdentity,
    disks::{DiskProvisioner, approve, check, failed, udev_kinds, udev_properties, unusable},
};
use virtfleet_agent_state::{DISKS_STATE, settings};
use virtfleet_runtime::exit::Code;
use virtfleet_wire::settings::{DiskFilesystem, DiskSettings};

use super::{
    apply::{self, lock, plan_code, run_code},
    disks_text::list,
    failure::Failure,
    print,
    verb::{ApplyOptions, Args, DisksVerb},
};

/// Timeout of discarding blocks.
const TRIM_TIMEOUT: Duration = Duration::from_mins(30);

/// The plan that `apply disks` would apply.
pub(super) fn plan(args: &Args) -> Result<Plan, Failure> {
    let (declared, unusable) = declared(args);
    let boot = BootIdentity::of(&args.roots);
    let provisioner = DiskProvisioner::of_guest(&args.roots, &boot, unusable.as_deref());
    Ok(provisioner.plan(&declared)?.plan)
}

pub(super) fn code(plan: &Plan) -> Code {
    plan_code(
        plan.disks.iter().any(|disk| !disk.refusals.is_empty()),
        plan.is_empty(),
    )
}

pub(super) fn apply(args: &Args, options: &ApplyOptions) -> Result<Code, Failure> {
    let boot = BootIdentity::of(&args.roots);
    apply::apply(
        args,
        options,
        |lock, mode| {
            // Read under the lock: the settings may have changed during the wait for another run.
            let (declared, unusable) = declared(args);
            let provisioner = DiskProvisioner {
                fail_points: lock,
                ..DiskProvisioner::of_guest(&args.roots, &boot, unusable.as_deref())
            };
            provisioner.run(&declared, mode)
        },
        |result| format!("{}\n{}", result.state.summary(), list(&result.state.disks)),
        exit,
    )
}

fn exit(state: &DisksState) -> Code {
    let is_refused = state.disks.iter().any(|disk| !disk.refusals.is_empty());
    run_code(failed(state), is_refused)
}

/// Prints what udev imports. Nothing that goes wrong here may fail the event of a device.
fn udev(roots: &Roots, device: &Path) -> Result<Code, Failure> {
    let found = udev_kinds(|name| std::env::var(name).ok());
    match udev_properties(roots, &SystemCommands, &roots.root(device), &found) {
        Ok(properties) => print::text(&properties)?,
        Err(error) => print::complain(&format!("{:#}", anyhow::Error::new(error))),
    }
    Ok(Code::Ok)
}

pub(super) fn disks(args: &Args, verb: &DisksVerb) -> Result<Code, Failure> {
    let (declared, unusable) = declared(args);
    let boot = BootIdentity::of(&args.roots);
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
            let state = DISKS_STATE.read(&args.roots, &boot.boot_id).map_err(|error| {
                if error.is_absent() {
                    anyhow!(
                        "no reconcile run has inspected the disks in this boot; as root: virtfleet-agent apply disks"
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
            let _lock = lock(args, None, "disks approve")?;
            let approved = approve(
                &DiskProvisioner::of_guest(&args.roots, &boot, unusable.as_deref()),
                &declared,
                who,
                evidence,
            )?;
            print::text(&format!(
                "approved for {approved}; next: virtfleet-agent plan disks, then virtfleet-agent apply disks\n"
            ))?;
            Ok(Code::Ok)
        }
        DisksVerb::Check => {
            let count = check(&args.roots, &boot.boot_id, &declared, unusable.as_deref())?;
            print::text(&match count {
                0 => format!("no disk is required, or {} is set\n", units::GATE_OFF),
                count => format!("in place: all {count} required disks\n"),
            })?;
            Ok(Code::Ok)
        }
        DisksVerb::Trim => trim(&args.roots, &declared),
        DisksVerb::Udev(device) => udev(&args.roots, device),
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
        match SystemCommands.check(&tool.deadline(TRIM_TIMEOUT)) {
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

/// The declared disks, and why they are unknown.
fn declared(args: &Args) -> (Vec<DiskSettings>, Option<String>) {
    let settings = settings::load(&args.roots, args.config.as_deref());
    let unusable = unusable(&args.roots, &settings);
    (settings.config.disks, unusable)
}

fn root(verb: &str) -> Result<(), Failure> {
    if is_root() {
        Ok(())
    } else {
        Err(anyhow::anyhow!("only root can inspect disks; sudo virtfleet-agent {verb}").into())
    }
}
