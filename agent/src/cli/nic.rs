//! The verbs of the queues of network interfaces: their plan, and `apply nic`.

use std::path::Path;

use anyhow::anyhow;
use virtfleet_agent_core::nic::{Plan, mask, state::NicState};
use virtfleet_agent_host::{NoFailPoints, nic_calls};
use virtfleet_agent_provision::{
    BootIdentity,
    nic::{NicProvisioner, Wanted, failed, real, wanted},
};
use virtfleet_agent_state::settings;
use virtfleet_runtime::exit::Code;
use virtfleet_wire::settings::Multiqueue;

use super::{
    apply::{self, plan_code, run_code},
    failure::Failure,
    rows::{Cell, push, rows},
    verb::{ApplyOptions, Args},
};

/// The plan that `apply nic` would apply.
pub(super) fn plan(args: &Args) -> Plan {
    with_provisioner(args, |provisioner| provisioner.plan(&load_wanted(args)))
}

pub(super) fn code(plan: &Plan) -> Code {
    plan_code(!plan.refusals.is_empty(), plan.steps.is_empty())
}

pub(super) fn apply(args: &Args, options: &ApplyOptions) -> Result<Code, Failure> {
    if args.roots.rootfs != Path::new("/") {
        return Err(anyhow!(
            "--path.rootfs: {} is not the root filesystem of the running machine, whose settings apply to its queues; omit this flag",
            args.roots.rootfs.display()
        )
        .into());
    }
    apply::apply(
        args,
        options,
        |_, mode| with_provisioner(args, |provisioner| provisioner.run(&load_wanted(args), mode)),
        |result| format!("{}\n{}", result.state.summary(), interfaces(&result.plan)),
        exit,
    )
}

fn with_provisioner<T>(args: &Args, run: impl FnOnce(&NicProvisioner<'_>) -> T) -> T {
    let boot = BootIdentity::of(&args.roots);
    let calls = nic_calls(&args.roots);
    run(&NicProvisioner {
        roots: &args.roots,
        world: &real(&args.roots, &*calls),
        calls: &*calls,
        fail_points: &NoFailPoints,
        boot_id: &boot.boot_id,
    })
}

fn exit(state: &NicState) -> Code {
    run_code(failed(state), !state.refusals.is_empty())
}

fn load_wanted(args: &Args) -> Wanted {
    wanted(&settings::load(&args.roots, args.config.as_deref()))
}

/// A plan as text: interfaces, steps, refusals, notes.
pub(super) fn text(plan: &Plan) -> String {
    let mut text = String::new();
    let multiqueue = match plan.multiqueue {
        Multiqueue::Off => "off",
        Multiqueue::ReportOnly => "report-only",
        Multiqueue::Auto => "auto",
    };
    let cpus = mask::words(&plan.online);
    push(
        &mut text,
        &format!("nic: multiqueue {multiqueue}, CPUs online: {cpus}"),
    );
    text.push_str(&interfaces(plan));
    for step in &plan.steps {
        push(&mut text, &format!("  {step}"));
    }
    for refusal in &plan.refusals {
        push(&mut text, &format!("  refused: {}", refusal.message));
        push(&mut text, &format!("    next: {}", refusal.remedy));
    }
    for note in &plan.notes {
        push(&mut text, &format!("  note: {note}"));
    }
    if plan.steps.is_empty() && plan.refusals.is_empty() {
        push(&mut text, "  nothing to do");
    }
    text
}

fn interfaces(plan: &Plan) -> String {
    if plan.nics.is_empty() {
        return "  no network interface with a device behind it\n".to_owned();
    }
    let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let head = ["INTERFACE", "QUEUES", "POSSIBLE", "WANTED", "STANDING", "WHY"];
    let head: Vec<Cell> = head.map(Cell::from).into();
    let each = plan.nics.iter().map(|nic| {
        vec![
            nic.nic.clone().into(),
            number(nic.current).into(),
            number(nic.possible).into(),
            number(nic.wanted).into(),
            nic.standing.word().into(),
            nic.because.clone().into(),
        ]
    });
    rows(2, &std::iter::once(head).chain(each).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::nic::{
        plan::{NicPlan, NicStep, Refusal, RefusalKind, Target},
        state::{NicStatus, QueueStatus},
    };

    use super::*;

    fn seen() -> Plan {
        Plan {
            online: vec![0, 1],
            nics: vec![NicPlan {
                nic: "eth0".to_owned(),
                current: Some(1),
                possible: Some(2),
                wanted: Some(2),
                standing: QueueStatus::Differs,
                because: "2 are wanted: 2 possible, CPUs online: 2".to_owned(),
                ..NicPlan::default()
            }],
            ..Plan::default()
        }
    }

    #[test]
    fn a_plan_has_a_table_steps_refusals_and_notes() {
        let mut plan = seen();
        assert_eq!(
            text(&plan),
            "nic: multiqueue report-only, CPUs online: 0-1\n\
             \x20 INTERFACE  QUEUES  POSSIBLE  WANTED  STANDING  WHY\n\
             \x20 eth0       1       2         2       differs   2 are wanted: 2 possible, CPUs online: 2\n\
             \x20 nothing to do\n"
        );
        assert_eq!(code(&plan), Code::Ok);
        let target = Target {
            nic: "eth0".to_owned(),
            ..Target::default()
        };
        plan.steps = vec![NicStep::SetChannels {
            target,
            from: 1,
            to: 2,
        }];
        assert_eq!(code(&plan), Code::Changes);
        assert!(text(&plan).ends_with("  eth0: 2 queues instead of 1\n"));
        plan.refusals = vec![Refusal {
            kind: RefusalKind::Unsupported,
            subject: "eth0".to_owned(),
            message: "no\u{1b}[31m".to_owned(),
            remedy: "this".to_owned(),
        }];
        plan.notes = vec!["mind".to_owned()];
        assert_eq!(code(&plan), Code::Refused);
        assert!(text(&plan).ends_with("  refused: no [31m\n    next: this\n  note: mind\n"));
    }

    #[test]
    fn failures_come_before_refusals_in_the_exit_code() {
        let mut state = NicState::default();
        assert_eq!(exit(&state), Code::Ok);
        state.refusals = vec!["no".to_owned()];
        assert_eq!(exit(&state), Code::Refused);
        let standing = NicStatus {
            standing: QueueStatus::RolledBack,
            ..NicStatus::default()
        };
        state.nics.insert("eth0".to_owned(), standing);
        assert_eq!(exit(&state), Code::Refused, "only observed");
        state.multiqueue = Multiqueue::Auto;
        assert_eq!(exit(&state), Code::Failure);
    }
}
