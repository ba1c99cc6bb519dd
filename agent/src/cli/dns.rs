//! The verbs of the guest's DNS: its plan, `apply dns`, and `dns`.

use anyhow::anyhow;
use virtfleet_agent_core::dns::{
    Plan,
    state::{DnsState, DnsStatus},
};
use virtfleet_agent_provision::{
    BootIdentity,
    dns::{DnsProvisioner, Observed, failed},
};
use virtfleet_agent_state::{
    DNS_STATE,
    settings::{
        self,
        dns::{Wanted, wanted},
    },
};
use virtfleet_runtime::exit::Code;

pub(super) use super::dns_text::text;
use super::{
    apply::{self, plan_code, run_code},
    dns_text::status_text,
    failure::Failure,
    print,
    verb::{ApplyOptions, Args},
};
use crate::output::Output;

/// The observed state, and what `apply dns` would do.
pub(super) fn plan(args: &Args) -> Result<Observed, Failure> {
    let boot = BootIdentity::of(&args.roots);
    let wanted = load_wanted(args);
    let observed = DnsProvisioner::of_guest(&args.roots, &boot).plan(&wanted.asked)?;
    Ok(observed.limited_to(&wanted))
}

pub(super) fn code(plan: &Plan) -> Code {
    plan_code(!plan.refusals.is_empty(), plan.steps.is_empty())
}

pub(super) fn apply(args: &Args, options: &ApplyOptions) -> Result<Code, Failure> {
    let boot = BootIdentity::of(&args.roots);
    apply::apply(
        args,
        options,
        |_, mode| DnsProvisioner::of_guest(&args.roots, &boot).run(&load_wanted(args), mode),
        |result| format!("{}\n{}", result.state.summary(), status_text(&result.state)),
        exit,
    )
}

/// Shows the state of DNS as of the last reconcile run.
pub(super) fn status(args: &Args, output: Output) -> Result<Code, Failure> {
    let boot_id = BootIdentity::of(&args.roots).boot_id;
    let state = DNS_STATE.read(&args.roots, &boot_id).map_err(|error| {
        if error.is_absent() {
            anyhow!(
                "no reconcile run has inspected DNS in this boot; as root: virtfleet-agent apply --stage dns"
            )
        } else {
            let what = format!("{DNS_STATE} cannot be used; as root: virtfleet-agent apply --stage dns");
            anyhow::Error::new(error).context(what)
        }
    })?;
    print::text(&output.render(&state, status_text)?)?;
    let bad = matches!(state.standing, DnsStatus::Broken | DnsStatus::RolledBack);
    Ok(if bad || failed(&state) {
        Code::Failure
    } else {
        Code::Ok
    })
}

fn exit(state: &DnsState) -> Code {
    run_code(failed(state), !state.refusals.is_empty())
}

fn load_wanted(args: &Args) -> Wanted {
    let settings = settings::load(&args.roots, args.config.as_deref());
    wanted(&args.roots, &settings)
}
