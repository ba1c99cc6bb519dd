//! The plan: what is written for the resolver that the guest has, or why nothing is.

mod refusal;
mod steps;

use std::{collections::BTreeMap, net::IpAddr};

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
    kubelet::{for_kubelet, kubelet_reads},
    merge::{Merged, Trimmed, Warning, merge},
    ours,
    render::{OurFile, Rendered, kubelets, render},
    resolv::ResolvConf,
    seen::{File, Owner, Seen},
};

/// One step. They run in order; when one fails, or the nameservers do not answer afterwards, all are undone in reverse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "step")]
pub enum Step {
    /// Write a file of ours.
    WriteFile {
        /// Its path.
        path: String,
        /// All of it.
        text: String,
        /// Its mode, e.g. `0o644`.
        mode: u32,
    },
    /// Remove a file of ours.
    RemoveFile {
        /// Its path.
        path: String,
    },
    /// Put a file of ours in the place of `/etc/resolv.conf`; what was there is kept aside first.
    TakeOver {
        /// All of it.
        text: String,
    },
    /// Put back what was in the place of `/etc/resolv.conf`.
    GiveBack {
        /// What was there.
        original: File,
    },
    /// Have a service take up what was written.
    Reload {
        /// Which.
        service: Service,
    },
    /// Have systemd-resolved forget what NetworkManager has told it of a link, which NetworkManager does not take back when it stops telling; or networkd what it was told
    /// at run time (`resolvectl revert`).
    Revert {
        /// The link's name.
        link: String,
    },
    /// Have networkd tell systemd-resolved nothing of a link, from now on and until networkd starts anew, which reads the drop-in then: the link is not configured anew
    /// (`resolvectl dns <link> ""`, which goes to networkd where the link is its own).
    Quiet {
        /// The link's name.
        link: String,
    },
    /// Have networkd tell of a link again what it knows; where it has read a drop-in of ours and so knows nothing, these (`resolvectl revert`, `resolvectl dns`).
    Speak {
        /// The link's name.
        link: String,
        /// The nameservers that were given on it.
        nameservers: Vec<String>,
        /// The search domains.
        searches: Vec<String>,
    },
    /// Forget what was cached.
    Flush,
}

impl Step {
    /// Whether it is about our drop-in of kubelet's configuration: a change of its own, so that whatever is in its way is in nothing else's.
    pub fn is_kubelets(&self) -> bool {
        matches!(self, Self::WriteFile { path, .. } | Self::RemoveFile { path } if ours::is_kubelet_drop_in(path))
    }
}

/// Whose configuration was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// `systemctl try-reload-or-restart systemd-resolved` (reload from version 254 on). Once no file of ours is there it reloads with our domains reset, or restarts.
    Resolved,
    /// `networkctl reload`, which reconfigures the links whose files have changed.
    Networkd,
    /// `nmcli general reload`.
    NetworkManager,
    /// `resolvconf -u`.
    Resolvconf,
}

/// Why nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The settings make no sense.
    Settings,
    /// No nameserver that is asked for may be used and answers; what is there stays.
    NothingVerified,
    /// A file is in the way that is not ours, or `/etc/resolv.conf` cannot be changed.
    NotOurs,
    /// A tool is missing.
    NoTool,
    /// A link has nameservers of its own for certain domains, and our files would take them away.
    SplitDns,
    /// What is there could not be found out.
    Unreadable,
}

/// A refusal with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Why.
    pub kind: RefusalKind,
    /// In one sentence, with what was found and where.
    pub message: String,
    /// What to do next.
    pub remedy: String,
    /// What was found, by name.
    pub facts: Vec<(String, String)>,
}

impl Refusal {
    /// Whether somebody's file is at the place of kubelet's drop-in.
    fn is_kubelets(&self) -> bool {
        self.kind == RefusalKind::NotOurs && self.facts.iter().any(|(_, what)| ours::is_kubelet_drop_in(what))
    }
}

/// The whole plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// For whom it is written.
    pub owner: Owner,
    /// What is asked for, after the merge: what the resolver would have, were every nameserver good.
    pub asked: ResolvConf,
    /// What the resolver is to have; none when nothing may be written.
    pub choice: Option<Choice>,
    /// What is done. Empty when everything is as asked for.
    pub steps: Vec<Step>,
    /// Writes the file that kubelet reads, where it is missing or not as it is to be. Done in every mode, whatever becomes of the steps.
    #[serde(default)]
    pub kubelet: Option<Step>,
    /// Why nothing is done.
    pub refusals: Vec<Refusal>,
    /// Nameservers that may not be used.
    pub collisions: Vec<Collision>,
    /// Nameservers that the platform hands out and that collide, while they are neither asked for nor in use: what the policy keeps away.
    #[serde(default)]
    pub averted: Vec<Collision>,
    /// Nameservers that were asked.
    pub judged: Vec<Judged>,
    /// What the merge left out.
    pub trimmed: Vec<Trimmed>,
    /// What else somebody should know.
    pub warnings: Vec<Warning>,
    /// What a person should know or tell others.
    pub advice: Vec<Advice>,
    /// The same, in one sentence each: what a person should know, e.g. which resolv.conf kubelet should be told.
    pub notes: Vec<String>,
}

/// All nameservers that matter, each with from where it comes, once: asked for, given by the platform, in use, last good.
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
        let from = given.map_or(format!("what {} uses now", seen.owner.name()), |one| {
            one.1.clone()
        });
        add(nameserver, from);
    }
    for nameserver in seen.last_good.iter().flat_map(|good| &good.nameservers) {
        add(*nameserver, "what was verified last".to_owned());
    }
    all
}

/// Whom to ask: what is asked for, what is in use, what was good last; each once. Those that collide are asked, too: whether they loop shows in what they answer.
pub fn candidates(asked: &Asked, seen: &Seen) -> Vec<IpAddr> {
    origins(asked, seen).into_iter().map(|one| one.0).collect()
}

/// The platform's nameservers that a plan needs an answer from in addition, because `ClusterFirst` is requested and no requested nameserver can be used. Empty
/// otherwise: while the cluster's DNS answers, nobody else is probed.
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

/// By which interface link-local nameservers among the [`candidates`] and [`fallback_candidates`] are reached.
pub fn zones(asked: &Asked, seen: &Seen) -> BTreeMap<IpAddr, String> {
    let platform = inherited(seen).0;
    let merged = merge(asked, &platform);
    let mut all = platform.zones;
    all.extend(seen.last_good.clone().unwrap_or_default().zones);
    all.extend(effective(seen).zones);
    all.extend(wanted(&merged).zones);
    all
}

/// What is asked for, and behind it what the limits cut off.
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

/// The plan. Pure, and empty when it is asked again after it was done. The same for every `manage` but `off`, which takes back what is ours.
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
    plan.advice = standing_advice(asked, seen, &merged.conf);
    plan.choice = plan.choose(asked, seen, &platform, &merged);
    let collisions = plan.collisions.clone();
    plan.for_kubelet(seen, &collisions, judged);
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

/// What stays with `manage: off`: the file that kubelet reads.
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

/// Whether the guest has it already without a file of ours but for kubelet: then there is nothing else to write.
fn satisfied(seen: &Seen, choice: &Choice) -> bool {
    let for_kubelet = |path: &str| path == ours::FOR_KUBELET || ours::is_kubelet_drop_in(path);
    ours::files(seen).all(|(path, _)| for_kubelet(path))
        && !ours::taken_over(&seen.resolv_conf)
        && is_in_use(seen, choice.conf())
}

/// Whether what is in use is this. A plain file's order counts, a daemon's does not; options count where they can be had.
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
    /// What is asked for; else, with `ClusterFirst`, the platform's nameservers; else the last good one. Both only when nothing that is in use may be used. Else a refusal.
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

    /// The platform's own nameservers, for as long as `ClusterFirst` has none that can be used: a node needs names to recover, and those that it was given are the only others.
    /// Search domains and options stay as requested, so that names mean the same. Only when nothing that is in use can be used, or when the agent has
    /// configured them for this reason already. Never a nameserver that collides, so never the user cluster's.
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

    /// Whether all that is asked for is what our own file has kept of the platform, and all of it and of what is in use is dead: the platform may give others by now (DHCPv6,
    /// router advertisements), which are not seen before ours are gone. Never where a lease names a nameserver, since that is seen, and may be the one that collides.
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
        self.kubelet = file.map(|OurFile { path, text, mode }| Step::WriteFile { path, text, mode });
    }

    /// The steps to what is rendered, or why not one of them is done.
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
