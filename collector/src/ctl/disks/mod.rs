//! `virtfleetctl disks`: changes disks in the specs of VMs in the infra cluster, with the rights of
//! the caller's kubeconfig.
//!
//! ```text
//! arguments ─ selection ─▶ VirtualMachines ─ plan (collector-core) ─▶ decisions ─ set_serials ─▶ JSON patches
//!                                                                        └──────── report ─▶ table, notes
//! ```

mod args;
mod report;
mod selection;
mod set_serials;
mod virtual_machines;

use virtfleet_runtime::exit::Code;

pub(super) use self::args::DisksCommand;
use self::{report::SerialReport, selection::select, virtual_machines::VirtualMachines};
use super::{cli::ConnectionArgs, console::Console, fail::Fail, infra_cluster::InfraCluster};

/// Runs the command.
///
/// # Errors
/// There is no kubeconfig, the VMs cannot be listed, or the output cannot be written. A VM that
/// cannot be changed is no error, but an exit code.
pub(super) fn run(
    command: &DisksCommand,
    connection: &ConnectionArgs,
    console: &mut Console<'_>,
) -> Result<Code, Fail> {
    let DisksCommand::SetSerials(args) = command;
    let InfraCluster { runtime, client } = InfraCluster::of(connection)?;
    let vms = VirtualMachines::new(client);
    let dry_run = !args.yes;
    let report = runtime.block_on(async {
        let selection = select(&vms, args).await?;
        let mut report = SerialReport {
            dry_run,
            left_out: selection.left_out,
            vms: Vec::new(),
        };
        for selected in selection.vms {
            report
                .vms
                .push(set_serials::set_serials(&vms, selected, dry_run).await);
        }
        Ok::<_, Fail>(report)
    })?;
    console.print(&report.text(&args.output, console.colour))?;
    for note in report.notes() {
        console.note(&note);
    }
    Ok(if report.has_failed() {
        Code::Failure
    } else {
        Code::Ok
    })
}
