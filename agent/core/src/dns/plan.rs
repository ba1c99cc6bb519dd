//! The DNS plan: which files and links the agent changes for the resolver of the guest, or why it
//! changes nothing.

mod refusal;
mod refused;
mod step;
mod steps;

pub use refused::{Refusal, RefusalKind};
use std::{collections::BTreeMap, net::IpAddr};
pub use step::{DnsStep, Service};

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::DnsManage;

use super::{
    advice::{Advice, standing_advice},
    answers::{Health, Judged},
    asked::Asked,
    choice::{Choice, choose},
    collision::{self, Collision},
    effective::{configured, effective},
    inherited::{inherited, kept},
    kubelet::{file_for_pods, for_kubelet, for_pods, is_named_by_hand, kubelet_reads},
    merge::{Merged, Trimmed, Warning, merge},
    ours,
    render::{OurFile, Rendered, kubelets, render},
    resolv::ResolvConf,
    seen::{Owner, Seen},
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Program that manages the resolver configuration.
    pub owner: Owner,
    /// Requested configuration after the merge, before nameservers are excluded.
    pub asked: ResolvConf,
    /// Configuration to apply; `None` if nothing may be written.
    pub choice: Option<Choice>,
    /// Steps to apply; empty if everything is as requested.
    pub steps: Vec<DnsStep>,
    /// Writes the file that kubelet reads if it is missing or outdated. The agent runs this step in
    /// every mode, even if the other steps fail.
    #[serde(default)]
    pub kubelet: Option<DnsStep>,
    /// Reasons why nothing is done.
    pub refusals: Vec<Refusal>,
    /// Nameservers that must not be used.
    pub collisions: Vec<Collision>,
    /// Colliding nameservers that the platform assigns and that are neither requested nor in use.
    #[serde(default)]
    pub averted: Vec<Collision>,
    /// Probe results of nameservers.
    pub judged: Vec<Judged>,
    /// Entries that the merge left out.
    pub trimmed: Vec<Trimmed>,
    /// Warnings about the settings.
    pub warnings: Vec<Warning>,
    pub advice: Vec<Advice>,
    /// The advice, one sentence each.
    pub notes: Vec<String>,
}

/// Returns all relevant nameservers with their origins, without duplicates: requested, assigned by
/// the platform, in use, last verified.
pub fn origins(asked: &Asked, seen: &Seen) -> Vec<(IpAddr, String)> {
    let (platform, from) = inherited(seen);
    let merged = merge(asked, &platform);
    let mut all: Vec<(IpAddr, String)> = Vec::new();
    let mut add = |nameserver: IpAddr, from: String| {
        if !all.iter().any(|one| one.0 == nameserver) {
            all.push((nameserver, from));
        }
    };
    let origin = |nameserver: IpAddr| {
        if asked.cluster_first() && asked.cluster_nameservers.contains(&nameserver) {
            return "dns.cluster.nameservers".to_owned();
        }
        let given = from.iter().find(|one| one.0 == nameserver);
        given.map_or("dns.config.nameservers".to_owned(), |one| one.1.clone())
    };
    for nameserver in wanted(&merged).nameservers {
        add(nameserver, origin(nameserver));
    }
    for nameserver in effective(seen).nameservers {
        let given = from.iter().find(|one| one.0 == nameserver);
        let from = given.map_or(
            format!("the current configuration of {}", seen.owner.name()),
            |one| one.1.clone(),
        );
        add(nameserver, from);
    }
    for nameserver in seen.last_good.iter().flat_map(|good| &good.nameservers) {
        add(*nameserver, "the last verified configuration".to_owned());
    }
    all
}

/// Returns the nameservers to probe: requested, in use and last verified, without duplicates.
/// Colliding nameservers are included, because the probe shows whether they loop.
pub fn candidates(asked: &Asked, seen: &Seen) -> Vec<IpAddr> {
    origins(asked, seen).into_iter().map(|one| one.0).collect()
}

/// Returns the platform's nameservers that must be probed too, because `ClusterFirst` is requested
/// and no requested nameserver can be used. Empty while the cluster's DNS answers.
pub fn fallback_candidates(asked: &Asked, seen: &Seen, judged: &[Judged]) -> Vec<IpAddr> {
    let (platform, from) = inherited(seen);
    let known = origins(asked, seen);
    let collisions = collision::find(asked, seen, &known);
    if !asked.cluster_first() || choose(&merge(asked, &platform), &collisions, judged).is_some() {
        return Vec::new();
    }
    let mut more = from;
    more.retain(|one| !known.iter().any(|other| other.0 == one.0));
    let collisions = collision::find(asked, seen, &more);
    more.retain(|one| !collisions.iter().any(|other| other.nameserver == one.0));
    more.into_iter().map(|one| one.0).collect()
}

/// Returns the interfaces of link-local nameservers among the [`candidates`] and
/// [`fallback_candidates`].
pub fn zones(asked: &Asked, seen: &Seen) -> BTreeMap<IpAddr, String> {
    let platform = inherited(seen).0;
    let merged = merge(asked, &platform);
    let mut all = platform.zones;
    all.extend(seen.last_good.clone().unwrap_or_default().zones);
    all.extend(effective(seen).zones);
    all.extend(wanted(&merged).zones);
    all
}

/// Requested configuration, followed by the nameservers that exceed the limits.
fn wanted(merged: &Merged) -> ResolvConf {
    let mut all = merged.conf.clone();
    for trimmed in &merged.trimmed {
        if let Trimmed::Nameservers { values } = trimmed {
            for word in values {
                all.add_server(word);
            }
        }
    }
    all
}

/// Returns the plan. Pure; empty if it is computed again after its steps were applied. It is the
/// same for every `manage` except `off`, which restores the original configuration.
pub fn plan(asked: &Asked, seen: &Seen, judged: &[Judged]) -> Plan {
    let mut plan = Plan {
        owner: seen.owner,
        ..Plan::default()
    };
    let matter = origins(asked, seen);
    let collisions = collision::find(asked, seen, &matter);
    if asked.manage == DnsManage::Off {
        plan.for_kubelet(seen, &collisions, judged);
        plan.finish(seen, &left_when_off(seen));
        return plan;
    }
    let (platform, mut given) = inherited(seen);
    let merged = merge(asked, &platform);
    plan.asked = merged.conf.clone();
    plan.trimmed.clone_from(&merged.trimmed);
    plan.warnings.clone_from(&merged.warnings);
    plan.collisions = collisions;
    given.retain(|one| !matter.iter().any(|other| other.0 == one.0));
    plan.averted = collision::find(asked, seen, &given);
    plan.judged = judged.to_vec();
    plan.choice = plan.choose(asked, seen, &platform, &merged);
    let collisions = plan.collisions.clone();
    // What the agent's file for kubelet can contain.
    let chosen = plan.choice.as_ref().map(|choice| choice.conf().clone());
    let pods = chosen
        .or_else(|| for_pods(seen, None, &collisions, judged))
        .unwrap_or_default();
    plan.advice.splice(0..0, standing_advice(asked, seen, &pods));
    plan.for_kubelet(seen, &collisions, judged);
    if !kubelet_reads(seen) && is_named_by_hand(seen, &pods) {
        plan.kubelet = file_for_pods(seen, &pods).map(write_file);
    }
    match plan.choice.clone() {
        Some(choice) => {
            let rendered = if satisfied(seen, &choice) {
                kubelets(seen, &choice)
            } else {
                render(asked, seen, &choice)
            };
            plan.finish(seen, &rendered);
        }
        None if plan.outdated(seen, &merged) => plan.finish(seen, &left_when_off(seen)),
        _ => {}
    }
    plan.notes = plan.advice.iter().map(ToString::to_string).collect();
    plan
}

fn write_file(OurFile { path, text, mode }: OurFile) -> DnsStep {
    DnsStep::WriteFile { path, text, mode }
}

/// With `manage: off`, only the file that kubelet reads stays.
fn left_when_off(seen: &Seen) -> Rendered {
    let kept = seen.files.get(ours::FOR_KUBELET).filter(|_| kubelet_reads(seen));
    let file = kept.map(|text| OurFile {
        path: ours::FOR_KUBELET.to_owned(),
        text: text.clone(),
        mode: 0o644,
    });
    Rendered {
        files: file.into_iter().collect(),
        ..Rendered::default()
    }
}

/// Whether the guest has the configuration without a file of the agent, except those for kubelet.
/// Then nothing else is written.
fn satisfied(seen: &Seen, choice: &Choice) -> bool {
    let for_kubelet = |path: &str| path == ours::FOR_KUBELET || ours::is_kubelet_drop_in(path);
    ours::files(seen).all(|(path, _)| for_kubelet(path))
        && !ours::taken_over(&seen.resolv_conf)
        && is_in_use(seen, choice.conf())
}

/// Whether `conf` is in use. The order of nameservers matters only in a plain file. Options matter
/// only where the resolver supports them.
pub(super) fn is_in_use(seen: &Seen, conf: &ResolvConf) -> bool {
    let now = effective(seen);
    let plain = matches!(seen.owner, Owner::File | Owner::Resolvconf);
    let servers = if plain {
        now.nameservers == conf.nameservers
    } else {
        now.nameservers.len() == conf.nameservers.len()
            && now.nameservers.iter().all(|one| conf.nameservers.contains(one))
    };
    let searches = conf
        .searches
        .iter()
        .all(|search| search == "." || now.searches.contains(search));
    let options = seen.owner == Owner::Resolved || conf.options.iter().all(|one| now.options.contains(one));
    servers && searches && options
}

impl Plan {
    /// Chooses the requested configuration; else, with `ClusterFirst`, the platform's nameservers;
    /// else the last verified ones. The latter two are used only if no nameserver in use may be
    /// used. Otherwise adds a refusal.
    fn choose(
        &mut self,
        asked: &Asked,
        seen: &Seen,
        platform: &ResolvConf,
        merged: &Merged,
    ) -> Option<Choice> {
        if let Some(choice) = choose(merged, &self.collisions, &self.judged) {
            return Some(choice);
        }
        let now = effective(seen);
        if let Some(choice) = self.platform_fallback(asked, seen, platform, merged) {
            self.advice.push(Advice::PlatformFallback {
                requested: merged.conf.nameservers.clone(),
                nameservers: choice.conf().nameservers.clone(),
            });
            return Some(choice);
        }
        let good = |conf: &ResolvConf| {
            let merged = Merged {
                conf: conf.clone(),
                ..Merged::default()
            };
            choose(&merged, &self.collisions, &self.judged)
        };
        if good(&now).is_none()
            && let Some(choice) = seen.last_good.as_ref().and_then(good)
        {
            self.advice.push(Advice::LastGood {
                nameservers: choice.conf().nameservers.clone(),
            });
            return Some(choice);
        }
        self.refusals.push(refusal::nothing_verified(
            merged,
            &now,
            &self.collisions,
            &self.judged,
        ));
        None
    }

    /// Chooses the platform's nameservers while `ClusterFirst` has none that can be used: a node
    /// needs name resolution to recover. Search domains and options stay as requested, so that
    /// names keep their meaning. Applies only if no nameserver in use can be used, or if the agent
    /// has already fallen back. Colliding nameservers, and so those of the user cluster, are never
    /// chosen.
    fn platform_fallback(
        &self,
        asked: &Asked,
        seen: &Seen,
        platform: &ResolvConf,
        merged: &Merged,
    ) -> Option<Choice> {
        if !asked.cluster_first() {
            return None;
        }
        let collisions: Vec<Collision> = self.collisions.iter().chain(&self.averted).cloned().collect();
        let only = |nameservers: &ResolvConf, others: &ResolvConf| Merged {
            conf: ResolvConf {
                nameservers: nameservers.nameservers.clone(),
                zones: nameservers.zones.clone(),
                searches: others.searches.clone(),
                options: others.options.clone(),
            },
            ..Merged::default()
        };
        let now = effective(seen);
        let in_use = choose(&only(&now, &now), &collisions, &self.judged).is_some();
        let platforms = |one: &IpAddr| platform.nameservers.contains(one);
        let told = configured(seen).unwrap_or_else(|| now.clone());
        let fell_back = !ours::paths(seen).is_empty() && told.nameservers.iter().all(platforms);
        if in_use && !fell_back {
            return None;
        }
        choose(&only(platform, &merged.conf), &collisions, &self.judged)
    }

    /// Whether the choice is the platform's nameservers because no requested one can be used.
    pub fn is_fallback(&self) -> bool {
        let fallback = |advice: &Advice| matches!(advice, Advice::PlatformFallback { .. });
        self.advice.iter().any(fallback)
    }

    /// Whether all requested nameservers come from what the agent's own file keeps of the platform,
    /// and they and the ones in use are all dead. The platform may assign others by now (DHCPv6,
    /// router advertisements), which are visible only after the agent's files are removed. Always
    /// false if a lease names a nameserver, since that is visible and may be the one that collides.
    fn outdated(&self, seen: &Seen, merged: &Merged) -> bool {
        let kept = kept(seen).map(|kept| kept.nameservers).unwrap_or_default();
        let dead = |one: &IpAddr| {
            let judged = self.judged.iter().find(|judged| judged.nameserver == *one);
            judged.is_some_and(|judged| judged.health == Health::Dead)
        };
        let wanted = &merged.conf.nameservers;
        let leased = seen.links.iter().flat_map(|link| &link.given);
        !wanted.is_empty()
            && wanted.iter().all(|one| kept.contains(one) && dead(one))
            && effective(seen).nameservers.iter().all(dead)
            && leased.into_iter().all(|given| given.conf.nameservers.is_empty())
    }

    fn for_kubelet(&mut self, seen: &Seen, collisions: &[Collision], judged: &[Judged]) {
        let file = for_kubelet(seen, self.choice.as_ref(), collisions, judged);
        self.kubelet = file.map(write_file);
    }

    /// Adds the steps that apply `rendered`, or the refusals that prevent them.
    fn finish(&mut self, seen: &Seen, rendered: &Rendered) {
        self.advice.extend(rendered.advice.iter().cloned());
        let (mut steps, advice) = steps::steps(seen, rendered);
        self.advice.extend(advice);
        let refusals = refusal::obstacles(seen, rendered, &steps);
        if !refusals.is_empty() {
            steps.retain(|step| !step.is_kubelets());
        }
        if refusals.iter().all(Refusal::is_kubelets) {
            self.steps = steps;
        }
        self.refusals.extend(refusals);
        self.notes = self.advice.iter().map(ToString::to_string).collect();
    }
}

#[cfg(test)]
mod tests;
