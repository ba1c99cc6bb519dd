//! Step `dns` of a pass.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use virtfleet_agent_core::{
    dns::{
        Asked, ResolvConf,
        asked::check,
        kubelet::for_kubelet,
        plan::{Refusal, RefusalKind, Step},
        render::OurFile,
        state::{DnsState, Standing},
    },
    pass::{Outcome, Stage},
};
use virtfleet_wire::settings::{DnsManage, DnsPolicy, DnsSettings};

use super::{Engine, How, Network, Observed, SETTLE, Until};
use crate::{
    host::{Roots, SystemCommands, Unwatched},
    identity::observe,
    provision::{
        disks::{Machine, chain},
        steps::{Guest, Report},
    },
    settings::LoadedSettings,
};

/// How long the boot waits for a network, where DNS is put right: less than the unit's start timeout, with what follows.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same where it is only looked at.
const PATIENCE_TO_REPORT: Duration = Duration::from_secs(5);

/// What the settings ask for, as far as they can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What is asked for; when nothing may be done, what looking needs.
    pub asked: Asked,
    /// Why nothing may be done: the settings are wrong, or not all of them are known.
    pub refusals: Vec<Refusal>,
}

/// What the settings ask for. A section `dns` that is wrong, or a file that is left out, never undoes what is there: nothing is done then.
pub fn wanted(roots: &Roots, settings: &LoadedSettings) -> Wanted {
    let dns = &settings.config.dns;
    let namespace = namespace(roots, dns);
    let refusal = |message: String, place: String| Refusal {
        kind: RefusalKind::Settings,
        message,
        remedy: "virtfleet-agent check-config".to_owned(),
        facts: vec![("place".to_owned(), place)],
    };
    let wrong = settings
        .problems
        .iter()
        .filter(|problem| problem.section() == "dns")
        .map(|problem| refusal(problem.to_string(), problem.path.clone()));
    let mut refusals: Vec<Refusal> = wrong.collect();
    let checked = check(dns, namespace.as_deref());
    if let (Err(problems), true) = (&checked, refusals.is_empty()) {
        let each = problems.iter();
        refusals.extend(each.map(|problem| {
            refusal(
                format!("{}: {}", problem.path, problem.message),
                problem.path.clone(),
            )
        }));
    }
    if let (true, Some(file)) = (refusals.is_empty(), settings.skipped.first()) {
        let message = format!("{file} is left out, so what is asked of DNS is not known");
        refusals.push(refusal(message, file.clone()));
    }
    match checked {
        Ok(asked) if refusals.is_empty() => Wanted { asked, refusals },
        _ => Wanted {
            asked: only_look(),
            refusals,
        },
    }
}

/// The VM's namespace by its asset tag, where it is needed and not set.
fn namespace(roots: &Roots, dns: &DnsSettings) -> Option<String> {
    let cluster = matches!(
        dns.policy,
        DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet
    );
    if !cluster || dns.cluster.namespace.is_some() {
        return None;
    }
    let vm = observe(roots).claims.vm?.value;
    Some(vm.split_once('/')?.0.to_owned())
}

/// The settings' defaults.
fn only_look() -> Asked {
    let probe = virtfleet_wire::settings::DnsProbeSettings::default();
    let milliseconds = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Asked {
        manage: DnsManage::ReportOnly,
        policy: DnsPolicy::Default,
        host_network: false,
        nameservers: Vec::new(),
        searches: Vec::new(),
        options: Vec::new(),
        cluster_nameservers: Vec::new(),
        cluster_domain: "cluster.local".to_owned(),
        namespace: None,
        node_local: vec![IpAddr::V4(Ipv4Addr::new(169, 254, 20, 10))],
        user_nameservers: Vec::new(),
        service_ranges: Vec::new(),
        probe_names: Vec::new(),
        probe_timeout_ms: milliseconds(probe.timeout.0),
        probe_interval_ms: milliseconds(probe.interval.0),
    }
}

impl Wanted {
    /// Takes everything out of a plan that the settings do not carry.
    pub fn limit(&self, mut observed: Observed) -> Observed {
        if !self.refusals.is_empty() {
            let plan = &mut observed.plan;
            plan.choice = None;
            plan.steps.clear();
            plan.asked = ResolvConf::default();
            plan.trimmed.clear();
            plan.warnings.clear();
            plan.refusals.clone_from(&self.refusals);
            // Nobody has asked for what the defaults make of it: what pods read stays, and one that is not there is as it was verified last.
            let file = for_kubelet(&observed.seen, None, &plan.collisions, &plan.judged);
            plan.kubelet = file
                .filter(|file| !observed.seen.files.contains_key(&file.path))
                .map(|OurFile { path, text, mode }| Step::WriteFile { path, text, mode });
        }
        observed
    }
}

pub(in super::super) fn run(guest: &mut Guest<'_>) -> Report {
    if guest.services.is_none() {
        let message = "the root filesystem is not the running machine's; its resolver is left alone";
        return Report::new(Outcome::Skipped, message);
    }
    let machine = Machine::of(guest.roots);
    let wanted = wanted(guest.roots, guest.settings);
    let engine = Engine {
        roots: guest.roots,
        commands: &SystemCommands,
        witness: &Unwatched,
        asker: &Network,
        boot_id: &machine.boot_id,
        settle: SETTLE,
    };
    let how = How {
        patience: match (guest.stage, wanted.asked.manage) {
            (Stage::Dns, DnsManage::Auto) => PATIENCE,
            (Stage::Dns, DnsManage::ReportOnly) => PATIENCE_TO_REPORT,
            _ => Duration::ZERO,
        },
        until: match guest.stage {
            Stage::Dns => Until::of_a_stage(guest.began),
            _ => Until::UNBOUNDED,
        },
        ..How::default()
    };
    match engine.pass(&wanted, how) {
        Err(error) => Report::new(Outcome::Failed, chain(error)),
        Ok(None) => Report::new(Outcome::Failed, "there was no plan to compare with"),
        Ok(Some(passed)) => {
            let outcome = if failed(&passed.state) {
                Outcome::Failed
            } else if passed.state.standing == Standing::Off && !passed.changed {
                Outcome::Skipped
            } else {
                Outcome::Ok
            };
            Report::new(outcome, summary(&passed.state))
        }
    }
}

/// Whether something failed, or DNS that is to be put right is not.
pub(crate) fn failed(state: &DnsState) -> bool {
    let bad = matches!(
        state.standing,
        Standing::Broken | Standing::Colliding | Standing::RolledBack | Standing::Unknown
    );
    state.error.is_some() || (bad && state.manage == DnsManage::Auto && !state.knows_nobody())
}

/// One line.
pub(crate) fn summary(state: &DnsState) -> String {
    let mut parts = vec![state.standing.word().to_owned()];
    if state.standing != Standing::Off {
        let nameservers = state.effective.shown_nameservers().join(", ");
        let nameservers = if nameservers.is_empty() {
            "no nameserver".to_owned()
        } else {
            nameservers
        };
        parts.push(format!("{nameservers} by {}", state.owner.name()));
    }
    parts.extend(state.error.clone());
    parts.extend(state.refusals.iter().map(|refusal| refusal.message.clone()));
    if !state.done.is_empty() {
        parts.push(format!("did {}", state.done.join(", ")));
    }
    parts.extend(
        state
            .verified_after_ms
            .map(|ms| format!("answered after {ms} ms")),
    );
    parts.join("; ")
}
