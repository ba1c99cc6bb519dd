//! One run over the guest's DNS.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use virtfleet_agent_core::dns::{
    Plan, Seen,
    choice::Choice,
    effective::effective,
    plan::{DnsStep, Service, plan},
    state::{DnsState, DnsStatus, standing},
};
use virtfleet_agent_host::{
    Roots, clock,
    dns::{
        Applied, ApplyDnsError, ObserveDnsError, Undone, apply, apply_with, keep_last_good, recover,
        recover_live, unfinished,
    },
};
use virtfleet_agent_state::{DNS_STATE, StateFile, WriteStateError, settings::dns::Wanted};
use virtfleet_wire::settings::DnsManage;

use super::{
    DnsProvisioner, Observed,
    record::{self, DnsOutcome},
    time::{BoundedCommands, CountingAsker, RunDeadline},
};
use crate::engine::{self, Domain, Mode, RunError, RunResult, error_chain};

/// Shortest time until a change that was rolled back is tried again, unless something has changed:
/// each try causes another run. It doubles with each rollback.
const MIN_RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// Longest such time.
const MAX_RETRY_INTERVAL: Duration = Duration::from_hours(1);

/// After so many rollbacks in one boot, only an admin's run configures links again.
const MAX_LINK_ROLLBACKS: u32 = 2;
/// What such a run reports.
const LINKS_SPARED: &str = "the configuration was rolled back twice since boot, and writing it would reconfigure links again; to retry: sudo virtfleet-agent apply dns";

/// Why a change was not begun. The stage's unit would be killed in the middle of it.
const NO_TIME: &str = "there was no time left to change DNS within this stage of the boot; the next run does it: sudo virtfleet-agent apply dns";

/// The mode of a run over DNS.
pub type DnsMode<'a> = Mode<'a, Plan>;

impl DnsProvisioner<'_> {
    /// Undoes what an interrupted run left, observes and probes, plans, applies the plan, and
    /// records the result. `None`: the plan is not the expected one, and nothing was changed but
    /// what the interrupted run left.
    ///
    /// # Errors
    /// DNS cannot be observed, or the state cannot be recorded.
    pub fn run(
        &self,
        wanted: &Wanted,
        mode: DnsMode<'_>,
    ) -> Result<Option<RunResult<Plan, DnsState>>, RunError<ObserveDnsError>> {
        let until = mode.budget.map_or(RunDeadline::UNBOUNDED, RunDeadline::within);
        let commands = BoundedCommands {
            commands: self.commands,
            until: until.all(),
        };
        let dns_client = CountingAsker {
            dns_client: self.dns_client,
            until: until.all(),
            asked: RefCell::default(),
        };
        let provisioner = DnsProvisioner {
            commands: &commands,
            dns_client: &dns_client,
            ..*self
        };
        let mut run = DnsRun {
            provisioner,
            wanted,
            mode,
            until,
            questions: &dns_client.asked,
            began: Instant::now(),
            previous: DnsState::default(),
            outcome: DnsOutcome::default(),
        };
        engine::run(&mut run, mode)
    }
}

struct DnsRun<'a> {
    provisioner: DnsProvisioner<'a>,
    wanted: &'a Wanted,
    mode: DnsMode<'a>,
    until: RunDeadline,
    /// How many questions each nameserver was asked.
    questions: &'a RefCell<BTreeMap<IpAddr, u32>>,
    began: Instant,
    /// What the last run of this boot recorded.
    previous: DnsState,
    outcome: DnsOutcome,
}

impl Domain for DnsRun<'_> {
    type Plan = Plan;
    type Observed = Observed;
    type State = DnsState;
    type Error = ObserveDnsError;

    const STATE: &'static StateFile<DnsState> = &DNS_STATE;

    fn roots(&self) -> &Roots {
        self.provisioner.roots
    }

    fn recover(&mut self) -> Result<(), WriteStateError> {
        let provisioner = &self.provisioner;
        self.previous = DNS_STATE
            .read(provisioner.roots, provisioner.boot_id)
            .unwrap_or_default();
        match self.undo_interrupted() {
            Ok(None) => {}
            Ok(Some(undone)) => {
                let paths = undone.restored.join(", ");
                let done = format!("restored after an interrupted change: {paths}");
                self.outcome.applied.done.push(done);
                self.outcome.rollbacks += 1;
            }
            Err(error) => self.outcome.error = Some(error_chain(error)),
        }
        Ok(())
    }

    fn observe(&mut self) -> Result<Observed, ObserveDnsError> {
        let by_admin = self.mode.by_admin;
        let observed = self
            .provisioner
            .plan_within(&self.wanted.asked, by_admin, self.until)?;
        Ok(observed.limited_to(self.wanted))
    }

    fn plan(observed: &Observed) -> &Plan {
        &observed.plan
    }

    fn agrees(expected: &Plan, plan: &Plan) -> bool {
        same(expected, plan)
    }

    fn apply(&mut self, mut observed: Observed) -> Result<Observed, RunError<ObserveDnsError>> {
        if self.outcome.error.is_none() {
            observed = self.write_for_kubelet(observed);
        }
        // A rollback is remembered until a change succeeds: a run in between that has nothing to do
        // does not end it.
        let previous = &self.previous;
        self.outcome.put_back.clone_from(&previous.put_back);
        self.outcome.put_back_at = previous.put_back_at_boottime_ns;
        if !self.may_change() || observed.plan.steps.is_empty() || self.outcome.error.is_some() {
            return Ok(observed);
        }
        let (kubelet, steps): (Vec<DnsStep>, Vec<DnsStep>) = observed
            .plan
            .steps
            .iter()
            .cloned()
            .partition(DnsStep::is_kubelets);
        if steps.is_empty() {
            self.change_kubelet(&kubelet);
        } else if let Err(reason) = self.may_begin(&observed.plan, &steps) {
            self.outcome.error = reason;
        } else {
            self.change_dns(&observed, &steps);
            if self.outcome.error.is_none() {
                self.change_kubelet(&kubelet);
            }
        }
        let outcome = &mut self.outcome;
        if outcome.changed || outcome.rollbacks > 0 || outcome.error.is_some() {
            let wrote_nameservers = outcome.changed && observed.plan.choice.is_some();
            let provisioner = DnsProvisioner {
                settle: self.until.settle(self.provisioner.settle),
                ..self.provisioner
            };
            let (asked, by_admin) = (&self.wanted.asked, self.mode.by_admin);
            match provisioner.observe_after_change(asked, by_admin, wrote_nameservers) {
                Ok(after) => observed = after.limited_to(self.wanted),
                Err(error) => outcome.error = outcome.error.take().or_else(|| Some(error_chain(error))),
            }
        }
        Ok(observed)
    }

    fn state(&mut self, observed: &mut Observed) -> DnsState {
        let may_change = self.may_change();
        let outcome = &mut self.outcome;
        outcome.questions.clone_from(&self.questions.borrow());
        outcome.milliseconds = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let is_still_due = may_change && !observed.plan.steps.iter().all(DnsStep::is_kubelets);
        let rolled_back = !outcome.put_back.is_empty() && (is_still_due || outcome.rollbacks > 0);
        outcome.standing = match standing(&self.wanted.asked, &observed.seen, &observed.plan) {
            DnsStatus::Off => DnsStatus::Off,
            _ if rolled_back => DnsStatus::RolledBack,
            standing => standing,
        };
        let is_restored = outcome.standing == DnsStatus::Off && observed.plan.steps.is_empty();
        if outcome.standing == DnsStatus::Verified || is_restored {
            outcome.put_back.clear();
        }
        let state = record::state(&self.provisioner, self.wanted, observed, &self.previous, outcome);
        // The choice, and not what is in use: systemd-resolved's stub has options and a search
        // domain of its own.
        let choice = observed.plan.choice.as_ref();
        let good = choice.map_or(&state.effective, Choice::conf);
        if state.standing == DnsStatus::Verified
            && let Err(error) = keep_last_good(self.provisioner.roots, good)
        {
            tracing::warn!(error = error_chain(error), "what was verified is not kept");
        }
        state
    }

    fn state_after_error(&mut self, error: &RunError<ObserveDnsError>) -> Option<DnsState> {
        match error {
            RunError::Observe(error) => {
                let reason = error_chain(error);
                Some(record::failed(
                    &self.provisioner,
                    self.wanted,
                    &self.previous,
                    &reason,
                ))
            }
            RunError::State(_) => None,
        }
    }

    fn into_plan(observed: Observed) -> Plan {
        observed.plan
    }

    fn changed(&self) -> bool {
        self.outcome.changed
    }
}

impl DnsRun<'_> {
    fn may_change(&self) -> bool {
        self.mode.by_admin || self.wanted.asked.manage != DnsManage::ReportOnly
    }

    /// Whether these steps may be applied now. The error is what the run reports instead; none if
    /// the rollback that it waits after reported nothing.
    fn may_begin(&self, plan: &Plan, steps: &[DnsStep]) -> Result<(), Option<String>> {
        let by_admin = self.mode.by_admin;
        if !by_admin && tried(&self.previous, steps) {
            Err(self.previous.error.clone())
        } else if !by_admin && links_are_spared(&self.previous, plan) {
            Err(Some(LINKS_SPARED.to_owned()))
        } else if !self.until.for_a_change() {
            Err(Some(NO_TIME.to_owned()))
        } else {
            Ok(())
        }
    }

    /// Undoes what an interrupted run left. Only an admin's run configures links of a live node
    /// again.
    fn undo_interrupted(&self) -> Result<Option<Undone>, ApplyDnsError> {
        let DnsProvisioner { roots, commands, .. } = self.provisioner;
        let seen = if self.mode.by_admin || !unfinished(roots) {
            None
        } else {
            self.provisioner.observe().ok()
        };
        let has_resolvectl = |seen: &Seen| seen.missing_tools.iter().all(|tool| tool != "resolvectl");
        let is_live = |seen: &Seen| seen.live.is_some() && has_resolvectl(seen);
        match seen.filter(is_live) {
            Some(seen) => recover_live(roots, commands, &seen.links),
            None => recover(roots, commands),
        }
    }

    /// Applies steps that need no verification.
    fn apply_unverified(&self, steps: &[DnsStep]) -> Result<Applied, ApplyDnsError> {
        let DnsProvisioner {
            roots,
            commands,
            fail_points,
            ..
        } = self.provisioner;
        apply(roots, commands, fail_points, steps, &mut || Ok(()))
    }

    /// Writes the file that kubelet reads if it is missing, in every mode. It is a change of its
    /// own: it stays, whatever happens to the others.
    fn write_for_kubelet(&mut self, mut observed: Observed) -> Observed {
        let Some(step) = observed.plan.kubelet.clone() else {
            return observed;
        };
        match self.apply_unverified(std::slice::from_ref(&step)) {
            Ok(applied) => {
                self.outcome.changed = true;
                self.outcome.applied.done.extend(applied.done);
                if let DnsStep::WriteFile { path, text, .. } = step {
                    observed.seen.files.insert(path, text);
                }
                observed.plan = plan(&self.wanted.asked, &observed.seen, &observed.plan.judged);
                observed.limited_to(self.wanted)
            }
            Err(error) => {
                self.outcome.error = Some(error_chain(error));
                observed
            }
        }
    }

    /// Writes or removes kubelet's drop-in. It is a change of its own: if kubelet's folder is not
    /// writable, the node keeps its DNS.
    fn change_kubelet(&mut self, steps: &[DnsStep]) {
        if steps.is_empty() {
            return;
        }
        match self.apply_unverified(steps) {
            Ok(applied) => {
                self.outcome.changed = true;
                self.outcome.kubelet_told = true;
                self.outcome.applied.done.extend(applied.done);
            }
            Err(error) => self.outcome.error = Some(error_chain(error)),
        }
    }

    /// Applies `steps`, verifies that the nameservers answer, and rolls back if they do not.
    fn change_dns(&mut self, observed: &Observed, steps: &[DnsStep]) {
        let (asked, by_admin) = (&self.wanted.asked, self.mode.by_admin);
        let conf = observed.plan.choice.as_ref().map(Choice::conf);
        let before = effective(&observed.seen).nameservers;
        let provisioner = DnsProvisioner {
            settle: self.until.settle(self.provisioner.settle),
            ..self.provisioner
        };
        // A restored configuration need not be better than what was in use, and an admin who asks
        // for it gets it.
        let answered = conf.is_some() || provisioner.answers(asked, &observed.seen).is_ok();
        let mut verify = || match provisioner.verify(asked, conf, &before) {
            Err(reason) if conf.is_none() && (by_admin || !answered) => {
                tracing::warn!(
                    reason,
                    "the original DNS configuration is restored and does not work now"
                );
                Ok(())
            }
            result => result,
        };
        let commands = BoundedCommands {
            commands: provisioner.commands,
            until: self.until.change(),
        };
        let done = apply_with(
            provisioner.roots,
            &commands,
            provisioner.commands,
            provisioner.fail_points,
            steps,
            &mut verify,
        );
        self.record_change(done, steps);
    }

    fn record_change(&mut self, done: Result<Applied, ApplyDnsError>, steps: &[DnsStep]) {
        let outcome = &mut self.outcome;
        match done {
            Ok(Applied {
                done,
                reloaded,
                notes,
            }) => {
                outcome.changed = true;
                outcome.put_back.clear();
                outcome.applied.done.extend(done);
                outcome.applied.reloaded = reloaded;
                for note in notes {
                    tracing::warn!("{note}");
                }
            }
            Err(error) => {
                if let ApplyDnsError::RolledBack { undone, .. } = &error {
                    outcome.rollbacks += 1;
                    // Files that someone else wrote meanwhile are left. Then it was their content
                    // that did not answer, and the next run writes ours again.
                    if undone.left.is_empty() {
                        steps.clone_into(&mut outcome.put_back);
                        outcome.put_back_at = clock().boottime_ns;
                    }
                    for note in &undone.notes {
                        tracing::warn!("{note}");
                    }
                }
                outcome.error = Some(error_chain(error));
            }
        }
    }
}

/// True if the plan configures links again although that was rolled back twice in this boot. On a
/// node, each time costs routes of the container network (`ManageForeignRoutes=` of networkd), so
/// only an admin's run tries again.
fn links_are_spared(previous: &DnsState, plan: &Plan) -> bool {
    let configures_links = |step: &DnsStep| {
        matches!(
            step,
            DnsStep::Reload {
                service: Service::Networkd
            }
        )
    };
    previous.rollbacks >= MAX_LINK_ROLLBACKS
        && previous.put_back.iter().any(configures_links)
        && plan.steps.iter().any(configures_links)
}

/// True if exactly these steps were rolled back a short time ago.
fn tried(previous: &DnsState, steps: &[DnsStep]) -> bool {
    let age = clock()
        .boottime_ns
        .saturating_sub(previous.put_back_at_boottime_ns);
    !previous.put_back.is_empty()
        && previous.put_back == steps
        && Duration::from_nanos(age)
            < (MIN_RETRY_INTERVAL * (1 << previous.rollbacks.saturating_sub(1).min(6)))
                .min(MAX_RETRY_INTERVAL)
}

/// True if two plans do the same for the same reasons. How long an answer took is not compared.
fn same(a: &Plan, b: &Plan) -> bool {
    let health = |plan: &Plan| -> Vec<_> {
        let each = plan.judged.iter();
        each.map(|one| (one.nameserver, one.health.is_usable())).collect()
    };
    let refused = |plan: &Plan| -> Vec<_> {
        let each = plan.refusals.iter();
        each.map(|one| (one.kind, one.message.clone())).collect()
    };
    (a.owner, &a.choice, &a.steps, &a.collisions) == (b.owner, &b.choice, &b.steps, &b.collisions)
        && health(a) == health(b)
        && refused(a) == refused(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_configured_anew_in_vain_twice_in_a_boot_at_most() {
        use Service::{Networkd, Resolved};
        let steps = |service| vec![DnsStep::Reload { service }];
        let plan = |service| Plan {
            steps: steps(service),
            ..Plan::default()
        };
        let before = |rollbacks, service| DnsState {
            rollbacks,
            put_back: steps(service),
            ..DnsState::default()
        };
        assert!(links_are_spared(&before(2, Networkd), &plan(Networkd)));
        assert!(!links_are_spared(&before(1, Networkd), &plan(Networkd)));
        assert!(!links_are_spared(&before(2, Resolved), &plan(Networkd)));
        assert!(!links_are_spared(&before(2, Networkd), &plan(Resolved)));
    }
}
