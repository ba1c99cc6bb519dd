//! `apply disks`, `apply dns` and `apply nic`: a run over one domain that an admin starts.

use std::{error::Error, time::Duration};

use anyhow::anyhow;
use serde::{Serialize, de::DeserializeOwned};
use virtfleet_agent_host::{Lock, LockError, is_root, lock_waiting};
use virtfleet_agent_provision::{ADMIN_LOCK_TIMEOUT, LOCK_FILE, Mode, RunError, RunResult};
use virtfleet_runtime::exit::Code;

use super::{
    failure::Failure,
    plan_file::read_plan,
    print,
    verb::{ApplyOptions, Args},
};

/// What [`apply`] runs: `dns`'s run, for example.
type Run<P, S, E> = Result<Option<RunResult<P, S>>, RunError<E>>;

/// Applies the plan of one domain and prints the state afterwards: `text` for people. With a plan
/// file the run changes nothing if the plan has changed. `code` makes the exit code of the state.
///
/// # Errors
/// The user is not root, the plan file cannot be used, another run takes too long, the plan has
/// changed, or the run fails.
pub(super) fn apply<P, S, E>(
    args: &Args,
    options: &ApplyOptions,
    run: impl FnOnce(&Lock, Mode<'_, P>) -> Run<P, S, E>,
    text: impl FnOnce(&RunResult<P, S>) -> String,
    code: impl FnOnce(&S) -> Code,
) -> Result<Code, Failure>
where
    P: DeserializeOwned,
    S: Serialize,
    E: Error + Send + Sync + 'static,
{
    let domain = options.domain.word();
    if !is_root() {
        return Err(anyhow!("only root can run apply {domain}; sudo virtfleet-agent apply {domain}").into());
    }
    let expected: Option<P> = options
        .plan
        .as_deref()
        .map(|file| read_plan(file, domain))
        .transpose()?;
    let lock = lock(args, options.wait, &format!("apply {domain}"))?;
    let Some(result) = run(&lock, Mode::of_admin(expected.as_ref()))? else {
        return Err(anyhow!(
            "what was found has changed since that plan was made, and nothing was done; look again: virtfleet-agent plan {domain}"
        )
        .into());
    };
    print::text(&options.output.render(&result.state, |_| text(&result))?)?;
    Ok(code(&result.state))
}

/// The exit code of a run: failed before refused.
pub(super) fn run_code(has_failed: bool, is_refused: bool) -> Code {
    match (has_failed, is_refused) {
        (true, _) => Code::Failure,
        (false, true) => Code::Refused,
        (false, false) => Code::Ok,
    }
}

/// The exit code of a plan: 3 something is refused, 2 something is to be done.
pub(super) fn plan_code(is_refused: bool, is_empty: bool) -> Code {
    match (is_refused, is_empty) {
        (true, _) => Code::Refused,
        (false, false) => Code::Changes,
        (false, true) => Code::Ok,
    }
}

/// Waits until no other run is under way, and says meanwhile which one is.
///
/// # Errors
/// The other run takes longer than `wait`, or the lock file cannot be used.
pub(super) fn lock(args: &Args, wait: Option<Duration>, doing: &str) -> Result<Lock, LockError> {
    let path = args.roots.root(LOCK_FILE);
    lock_waiting(
        &path,
        wait.unwrap_or(ADMIN_LOCK_TIMEOUT),
        doing,
        &mut print::complain,
    )
}
