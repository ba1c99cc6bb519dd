//! One pass over the guest's DNS.

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
    plan::{Service, Step, plan},
    state::{DnsState, Standing, standing},
};
use virtfleet_agent_host::{
    clock,
    dns::{
        Applied, ApplyDnsError, Undone, apply, apply_with, keep_last_good, recover, recover_live, unfinished,
    },
};
use virtfleet_agent_state::{DNS_STATE, settings::dns::Wanted};
use virtfleet_wire::settings::DnsManage;

use super::{
    Engine, Observed, PlanDnsError,
    record::{self, Outcome},
    time::{Counting, Until, Within},
};
use crate::disks::chain;

/// What was put back is not tried again for so long, unless something has changed, since each try causes another pass. Twice as long each time.
const AGAIN: Duration = Duration::from_mins(1);
/// At most so long.
const MOST_AGAIN: Duration = Duration::from_hours(1);

/// After so many changes of a boot that were put back, no link is configured anew by itself.
const MOST_ROLLBACKS: u32 = 2;
/// Why.
const SPARED: &str = "what was written was put back twice since boot, and would configure links anew once more: sudo virtfleet-agent apply dns tries it again";

/// A stage of the boot ends before its unit is killed in the middle of a change.
const NO_TIME: &str = "there was no time left to change DNS within this stage of the boot; the next pass does: sudo virtfleet-agent apply dns";

/// What a pass may do.
#[derive(Debug, Clone, Copy, Default)]
pub struct How<'a> {
    /// How long a network is waited for; without any at all the pass reports what there is.
    pub patience: Duration,
    /// Until when it must have ended, with what it puts back.
    pub until: Until,
    /// A person asks: what is planned is done with `manage: report-only`, too.
    pub by_hand: bool,
    /// A plan that a person has read: when what it rests on is not so any more, nothing is done.
    pub expected: Option<&'a Plan>,
}

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Passed {
    /// How DNS stands now.
    pub state: DnsState,
    /// Whether anything was changed.
    pub changed: bool,
}

impl Engine<'_> {
    /// Undoes what a crash has left, looks, asks, plans, and does what may be done; records how DNS stands then. `None`: the plan is not the one that was
    /// expected, and nothing was done.
    pub fn pass(&self, wanted: &Wanted, how: How<'_>) -> Result<Option<Passed>, PlanDnsError> {
        let commands = Within {
            commands: self.commands,
            until: how.until.all(),
        };
        let asker = Counting {
            asker: self.asker,
            until: how.until.all(),
            asked: RefCell::default(),
        };
        let engine = Engine {
            commands: &commands,
            asker: &asker,
            ..*self
        };
        engine.pass_within(wanted, how, &asker.asked)
    }

    fn pass_within(
        &self,
        wanted: &Wanted,
        how: How<'_>,
        questions: &RefCell<BTreeMap<IpAddr, u32>>,
    ) -> Result<Option<Passed>, PlanDnsError> {
        let began = Instant::now();
        let previous = DNS_STATE.read(self.roots, self.boot_id).unwrap_or_default();
        let mut outcome = Outcome::default();
        match self.recover(how.by_hand) {
            Ok(None) => {}
            Ok(Some(undone)) => {
                let paths = undone.restored.join(", ");
                outcome
                    .applied
                    .done
                    .push(format!("put back after a change that did not end: {paths}"));
                outcome.rollbacks += 1;
            }
            Err(error) => outcome.error = Some(chain(error)),
        }
        let asked = &wanted.asked;
        let mut observed = match self.plan_within(asked, how) {
            Ok(observed) => observed.limited_to(wanted),
            Err(error) => {
                let reason = chain(error);
                DNS_STATE.write(self.roots, &record::failed(self, wanted, &previous, &reason))?;
                return Err(PlanDnsError::Unknown(reason));
            }
        };
        if how.expected.is_some_and(|plan| !same(plan, &observed.plan)) {
            return Ok(None);
        }
        if outcome.error.is_none() {
            observed = self.for_kubelet(wanted, observed, &mut outcome);
        }
        // What was put back is remembered until something succeeds: a pass in between that has nothing to do makes it no better.
        outcome.put_back.clone_from(&previous.put_back);
        outcome.put_back_at = previous.put_back_at_boottime_ns;
        let may = how.by_hand || asked.manage != DnsManage::ReportOnly;
        if may && !observed.plan.steps.is_empty() && outcome.error.is_none() {
            let (kubelets, steps): (Vec<Step>, Vec<Step>) =
                observed.plan.steps.iter().cloned().partition(Step::is_kubelets);
            if steps.is_empty() {
                self.tell_kubelet(&kubelets, &mut outcome);
            } else if !how.by_hand && tried(&previous, &steps) {
                outcome.error.clone_from(&previous.error);
            } else if !how.by_hand && links_are_spared(&previous, &observed.plan) {
                outcome.error = Some(SPARED.to_owned());
            } else if !how.until.for_a_change() {
                outcome.error = Some(NO_TIME.to_owned());
            } else {
                self.act(wanted, &observed, &steps, how, &mut outcome);
                if outcome.error.is_none() {
                    self.tell_kubelet(&kubelets, &mut outcome);
                }
            }
            if outcome.changed || outcome.rollbacks > 0 || outcome.error.is_some() {
                match self.planned(asked, how.by_hand) {
                    Ok(after) => observed = after.limited_to(wanted),
                    Err(error) => outcome.error = outcome.error.or_else(|| Some(chain(error))),
                }
            }
        }
        outcome.questions.clone_from(&questions.borrow());
        outcome.milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let put_back = |outcome: &Outcome| {
            let still = may && !observed.plan.steps.iter().all(Step::is_kubelets);
            !outcome.put_back.is_empty() && (still || outcome.rollbacks > 0)
        };
        outcome.standing = match standing(asked, &observed.seen, &observed.plan) {
            Standing::Off => Standing::Off,
            _ if put_back(&outcome) => Standing::RolledBack,
            standing => standing,
        };
        let given_back = outcome.standing == Standing::Off && observed.plan.steps.is_empty();
        if outcome.standing == Standing::Verified || given_back {
            outcome.put_back.clear();
        }
        let changed = outcome.changed;
        let state = record::state(self, wanted, &observed, &previous, outcome);
        // What was chosen, and not what is in use: systemd-resolved's stub has options and a search domain of its own.
        let good = observed
            .plan
            .choice
            .as_ref()
            .map_or(&state.effective, Choice::conf);
        if state.standing == Standing::Verified
            && let Err(error) = keep_last_good(self.roots, good)
        {
            tracing::warn!(error = chain(error), "what was verified is not kept");
        }
        DNS_STATE.write(self.roots, &state)?;
        Ok(Some(Passed { state, changed }))
    }

    /// Undoes what a crash has left; by itself without having links of a live node configured anew.
    fn recover(&self, by_hand: bool) -> Result<Option<Undone>, ApplyDnsError> {
        let seen = if by_hand || !unfinished(self.roots) {
            None
        } else {
            self.observe().ok()
        };
        let without = |seen: &Seen| seen.missing_tools.iter().any(|tool| tool == "resolvectl");
        let live = |seen: &Seen| seen.live.is_some() && !without(seen);
        match seen.filter(live) {
            Some(seen) => recover_live(self.roots, self.commands, &seen.links),
            None => recover(self.roots, self.commands),
        }
    }

    /// Writes the file that kubelet reads, where it is missing: in every mode, and as a change of its own, so that whatever becomes of the others it stays.
    fn for_kubelet(&self, wanted: &Wanted, mut observed: Observed, outcome: &mut Outcome) -> Observed {
        let Some(step) = observed.plan.kubelet.clone() else {
            return observed;
        };
        let steps = [step];
        match apply(self.roots, self.commands, self.witness, &steps, &mut || Ok(())) {
            Ok(applied) => {
                outcome.changed = true;
                outcome.applied.done.extend(applied.done);
                let [step] = steps;
                if let Step::WriteFile { path, text, .. } = step {
                    observed.seen.files.insert(path, text);
                }
                observed.plan = plan(&wanted.asked, &observed.seen, &observed.plan.judged);
                observed.limited_to(wanted)
            }
            Err(error) => {
                outcome.error = Some(chain(error));
                observed
            }
        }
    }

    /// Writes kubelet's drop-in, or takes it away: a change of its own, since a folder of kubelet's that cannot be written to is no reason to leave the node without DNS.
    fn tell_kubelet(&self, steps: &[Step], outcome: &mut Outcome) {
        if steps.is_empty() {
            return;
        }
        match apply(self.roots, self.commands, self.witness, steps, &mut || Ok(())) {
            Ok(applied) => {
                outcome.changed = true;
                outcome.kubelet_told = true;
                outcome.applied.done.extend(applied.done);
            }
            Err(error) => outcome.error = Some(chain(error)),
        }
    }

    fn act(&self, wanted: &Wanted, observed: &Observed, steps: &[Step], how: How<'_>, outcome: &mut Outcome) {
        let plan = &observed.plan;
        let conf = plan.choice.as_ref().map(Choice::conf);
        let before = effective(&observed.seen).nameservers;
        let engine = Engine {
            settle: how.until.settle(self.settle),
            ..*self
        };
        // What is given back need not be better than what there was, and a person who wants it gets it.
        let answered = conf.is_some() || self.answers(&wanted.asked, &observed.seen).is_ok();
        let mut verify = || match engine.verify(&wanted.asked, conf, &before) {
            Err(reason) if conf.is_none() && (how.by_hand || !answered) => {
                tracing::warn!(
                    reason,
                    "what was there before is given back, and is of no use now"
                );
                Ok(())
            }
            result => result,
        };
        let commands = Within {
            commands: self.commands,
            until: how.until.change(),
        };
        let done = apply_with(
            self.roots,
            &commands,
            self.commands,
            self.witness,
            steps,
            &mut verify,
        );
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
                    // What did not answer was another's, who wrote a file over meanwhile: ours has not failed, and the next pass writes it again.
                    if undone.left.is_empty() {
                        steps.clone_into(&mut outcome.put_back);
                        outcome.put_back_at = clock().boottime_ns;
                    }
                    for note in &undone.notes {
                        tracing::warn!("{note}");
                    }
                }
                outcome.error = Some(chain(error));
            }
        }
    }
}

/// Whether a plan would have links configured anew that were so twice in vain in this boot. On a node that costs routes of the container network
/// (`ManageForeignRoutes=` of networkd), so only a person tries again.
fn links_are_spared(previous: &DnsState, plan: &Plan) -> bool {
    let configures_links = |step: &Step| {
        matches!(
            step,
            Step::Reload {
                service: Service::Networkd
            }
        )
    };
    previous.rollbacks >= MOST_ROLLBACKS
        && previous.put_back.iter().any(configures_links)
        && plan.steps.iter().any(configures_links)
}

/// Whether these very steps were put back a short while ago.
fn tried(previous: &DnsState, steps: &[Step]) -> bool {
    let age = clock()
        .boottime_ns
        .saturating_sub(previous.put_back_at_boottime_ns);
    !previous.put_back.is_empty()
        && previous.put_back == steps
        && Duration::from_nanos(age)
            < (AGAIN * (1 << previous.rollbacks.saturating_sub(1).min(6))).min(MOST_AGAIN)
}

/// Whether two plans do the same for the same reasons. How long an answer took does not count.
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
        let steps = |service| vec![Step::Reload { service }];
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
