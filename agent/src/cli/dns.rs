//! The verbs of the guest's DNS: its plan, `apply dns`, and `dns`.

use std::{path::Path, time::Duration};

use anyhow::anyhow;
use virtfleet_agent_core::dns::{
    Plan,
    state::{DnsState, Standing},
};
use virtfleet_agent_host::{SystemCommands, Unwatched, dns::Network, is_root};
use virtfleet_agent_provision::{
    disks::Machine,
    dns::{Engine, How, Observed, SETTLE, failed},
};
use virtfleet_agent_state::settings::dns::{Wanted, wanted};
use virtfleet_agent_state::{DNS_STATE, settings};
use virtfleet_runtime::exit::Code;

pub(super) use super::dns_text::text;
use super::{Args, disks::turn, dns_text::status_text, plan::read_plan, print, verbs::Failure};
use crate::output::Output;

/// What is there and what `apply dns` would do.
pub(super) fn plan(args: &Args) -> Result<Observed, Failure> {
    let machine = Machine::of(&args.roots);
    let wanted = asked(args);
    let observed = engine(args, &machine).plan(&wanted.asked)?;
    Ok(observed.limited_to(&wanted))
}

/// What a plan comes to as an exit code: 3 something is refused, 2 something is to be done.
pub(super) fn code(plan: &Plan) -> Code {
    if !plan.refusals.is_empty() {
        Code::Refused
    } else if plan.steps.is_empty() {
        Code::Ok
    } else {
        Code::Changes
    }
}

/// Does what the plan says, as a person asks for it: with a file, only if what the plan rests on is still so.
pub(super) fn apply(
    args: &Args,
    file: Option<&Path>,
    output: Output,
    wait: Option<Duration>,
) -> Result<Code, Failure> {
    if !is_root() {
        return Err(anyhow!("only root can change DNS; sudo virtfleet-agent apply dns").into());
    }
    let expected: Option<Plan> = file.map(|file| read_plan(file, "dns")).transpose()?;
    let _lock = turn(args, wait, "apply dns")?;
    let machine = Machine::of(&args.roots);
    let how = How {
        by_hand: true,
        expected: expected.as_ref(),
        ..How::default()
    };
    let Some(passed) = engine(args, &machine).pass(&asked(args), how)? else {
        return Err(anyhow!(
            "what was found has changed since that plan was made, and nothing was done; look again: virtfleet-agent plan dns"
        )
        .into());
    };
    print::text(&output.render(&passed.state, |state| {
        format!("{}\n{}", state.summary(), status_text(state))
    })?)?;
    Ok(exit(&passed.state))
}

/// How DNS stands since the last pass.
pub(super) fn status(args: &Args, output: Output) -> Result<Code, Failure> {
    let boot_id = Machine::of(&args.roots).boot_id;
    let state = DNS_STATE.read(&args.roots, &boot_id).map_err(|error| {
        if error.is_absent() {
            anyhow!("no pass has looked at DNS in this boot; as root: virtfleet-agent apply --stage dns")
        } else {
            let what = format!("{DNS_STATE} cannot be used; as root: virtfleet-agent apply --stage dns");
            anyhow::Error::new(error).context(what)
        }
    })?;
    print::text(&output.render(&state, status_text)?)?;
    let bad = matches!(state.standing, Standing::Broken | Standing::RolledBack);
    Ok(if bad || failed(&state) {
        Code::Failure
    } else {
        Code::Ok
    })
}

/// Failed before refused, as with disks.
fn exit(state: &DnsState) -> Code {
    if failed(state) {
        Code::Failure
    } else if state.refusals.is_empty() {
        Code::Ok
    } else {
        Code::Refused
    }
}

fn asked(args: &Args) -> Wanted {
    let settings = settings::load(&args.roots, args.config.as_deref());
    wanted(&args.roots, &settings)
}

fn engine<'a>(args: &'a Args, machine: &'a Machine) -> Engine<'a> {
    Engine {
        roots: &args.roots,
        commands: &SystemCommands,
        witness: &Unwatched,
        asker: &Network,
        boot_id: &machine.boot_id,
        settle: SETTLE,
    }
}
