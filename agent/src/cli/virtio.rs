//! The verb `virtio`: devices, queues and interrupts as a tree, and what is to be said of them.

use serde::Serialize;
use virtfleet_agent_core::virtio::Machine;
use virtfleet_runtime::exit::Code;
use virtfleet_wire::finding::{Finding, Severity};

use super::{Args, print, verbs::Failure, virtio_text::text};
use crate::{host::is_root, identity::observe, output::Output, settings, virtio::look};

/// What `-o json` and `-o yaml` give.
#[derive(Serialize)]
struct Document<'a> {
    machine: &'a Machine,
    findings: &'a [Finding],
}

/// Looks and prints; exit code 1 when a device does not work.
pub(super) fn show(args: &Args, all: bool, output: Output) -> Result<Code, Failure> {
    let settings = settings::load(&args.roots, args.config.as_deref());
    let boot_id = observe(&args.roots).boot_id;
    let root = is_root();
    let seen = look(&args.roots, &boot_id, &settings.config.nic, root);
    let document = Document {
        machine: &seen.machine,
        findings: &seen.findings,
    };
    print::coloured(&output.render(&document, |_| text(&seen, all, root))?)?;
    let critical = |finding: &Finding| finding.severity == Severity::Critical;
    Ok(if seen.findings.iter().any(critical) {
        Code::Failure
    } else {
        Code::Ok
    })
}
