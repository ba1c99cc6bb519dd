//! One DNS reconcile run on the machine on which this program runs. `virtfleet_tests::dns` starts
//! it inside a guest.
//!
//! `dns-stage ORDER` (JSON). Prints each point between two effects when it is reached, and the
//! result as the last line.

use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use nix::{
    sys::signal::{Signal, kill},
    unistd::getpid,
};
use virtfleet_agent_core::dns::{
    Asked, Seen,
    answers::{Judged, judge, questions},
    asked::check,
    effective::effective,
    plan::{candidates, plan},
};
use virtfleet_agent_host::{
    FailPoints, Roots, SystemCommands,
    dns::{Ask, apply, ask, keep_last_good, observe, random_bytes, recover},
};
use virtfleet_agent_provision::dns::SETTLE;
use virtfleet_tests::{
    dns::{Order, Outcome, Plays},
    process::Launch,
    wait::eventually,
};

const BOOT: &str = "00000000-0000-4000-8000-000000000001";
const SCRIPT: Duration = Duration::from_secs(20);
/// Timeout of a nameserver's answer where no service has to apply what was written.
const SOON: Duration = Duration::from_secs(3);

/// Reports each point, runs the order's script at one, and kills the process at another.
struct Stage {
    kill_at: Option<usize>,
    plays: Option<Plays>,
    played: Cell<bool>,
    points: RefCell<Vec<String>>,
}

impl FailPoints for Stage {
    fn at(&self, point: &str) {
        println!("{point}");
        self.points.borrow_mut().push(point.to_owned());
        if let Some(plays) = &self.plays
            && point.starts_with(&plays.at)
            && !self.played.replace(true)
            && let Err(error) = Launch::new("/bin/sh").args(["-c", &plays.script]).text(SCRIPT)
        {
            eprintln!("{point}: {error:#}");
        }
        if self.kill_at == Some(self.points.borrow().len()) {
            kill(getpid(), Signal::SIGKILL).ok();
        }
    }
}

fn judged(asked: &Asked, seen: &Seen, nameservers: &[IpAddr]) -> Vec<Judged> {
    let answers = ask(
        &questions(asked, nameservers),
        Ask {
            timeout: Duration::from_millis(asked.probe_timeout_ms),
            port: 53,
            random: &mut random_bytes,
        },
    );
    judge(asked, seen, &answers)
}

/// Whether a nameserver in use works: at once, or after links have been reconfigured.
fn verify(asked: &Asked, roots: &Roots, settle: Duration) -> Result<(), String> {
    eventually(settle, "an answer", || {
        answers(asked, roots).map_err(anyhow::Error::msg)
    })
    .map_err(|error| format!("{error:#}"))
}

fn answers(asked: &Asked, roots: &Roots) -> Result<(), String> {
    let seen = observe(roots, &SystemCommands, BOOT).map_err(|error| error.to_string())?;
    let judged = judged(asked, &seen, &effective(&seen).nameservers);
    if judged.iter().any(|one| one.health.is_usable()) {
        return Ok(());
    }
    let reasons: Vec<&str> = judged.iter().map(|one| one.because.as_str()).collect();
    Err(format!("nothing in use answers: {}", reasons.join("; ")))
}

fn pass(order: &Order, stage: &Stage) -> Result<Outcome> {
    let roots = Roots::default();
    let mut outcome = Outcome {
        recovered: recover(&roots, &SystemCommands)?.map(|undone| format!("{undone:?}")),
        ..Outcome::default()
    };
    if order.recover_only {
        return Ok(outcome);
    }
    let asked = check(&order.dns, None).map_err(|problems| anyhow!("{problems:?}"))?;
    let seen = observe(&roots, &SystemCommands, BOOT)?;
    let judged = judged(&asked, &seen, &candidates(&asked, &seen));
    let plan = plan(&asked, &seen, &judged);
    outcome.steps = plan.steps.len();
    outcome.refusals = plan
        .refusals
        .iter()
        .map(|refusal| format!("{:?}: {}", refusal.kind, refusal.message))
        .collect();
    if plan.steps.is_empty() {
        return Ok(outcome);
    }
    match apply(&roots, &SystemCommands, stage, &plan.steps, &mut || {
        verify(&asked, &roots, if order.services { SETTLE } else { SOON })
    }) {
        Ok(_) => {
            if let Some(choice) = &plan.choice {
                keep_last_good(&roots, choice.conf())?;
            }
        }
        Err(error) => outcome.error = Some(format!("{:#}", anyhow!(error))),
    }
    Ok(outcome)
}

fn main() -> Result<()> {
    let order = std::env::args().nth(1).context("usage: dns-stage ORDER")?;
    let order: Order = serde_json::from_str(&order)?;
    let stage = Stage {
        kill_at: order.kill_at,
        plays: order.plays.clone(),
        played: Cell::new(false),
        points: RefCell::default(),
    };
    let outcome = Outcome {
        points: Vec::new(),
        ..pass(&order, &stage)?
    };
    let outcome = Outcome {
        points: stage.points.take(),
        ..outcome
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}
