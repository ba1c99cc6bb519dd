//! `/run/virtfleet/state/dns.json`: how the guest's DNS stands, as root's last pass has found and left it.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use virtfleet_wire::{finding::Finding, settings::DnsManage};

use super::{
    answers::Judged,
    asked::Asked,
    collision::Collision,
    effective::effective,
    plan::{Plan, Refusal, RefusalKind, Service, Step, is_in_use},
    resolv::ResolvConf,
    seen::{Link, Owner, Seen},
};

/// The version of the file's shape.
pub const FORMAT: u32 = 1;

/// How it stands, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// As asked for, and verified.
    Verified,
    /// It answers, and is not as asked for (and may not be changed, or is refused).
    Differs,
    /// A nameserver in use collides, or will.
    Colliding,
    /// No nameserver in use answers.
    Broken,
    /// It was changed, did not answer, and was put back.
    RolledBack,
    /// It could not be found out.
    #[default]
    Unknown,
    /// `manage: off`.
    Off,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Verified,
        Self::Differs,
        Self::Colliding,
        Self::Broken,
        Self::RolledBack,
        Self::Unknown,
        Self::Off,
    ];

    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Differs => "differs",
            Self::Colliding => "colliding",
            Self::Broken => "broken",
            Self::RolledBack => "rolled-back",
            Self::Unknown => "unknown",
            Self::Off => "off",
        }
    }
}

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsState {
    /// [`FORMAT`].
    pub v: u32,
    /// The boot.
    pub boot_id: String,
    /// When it was written, `CLOCK_BOOTTIME`.
    pub at_boottime_ns: u64,
    /// When it was written, in nanoseconds since 1970.
    pub at_ns: u64,
    /// What may be done.
    pub manage: DnsManage,
    /// In one word.
    pub standing: Standing,
    /// Who owns `/etc/resolv.conf`.
    pub owner: Owner,
    /// Why we say so.
    pub owner_because: String,
    /// What is in use now: the upstreams behind a stub, not the stub.
    pub effective: ResolvConf,
    /// What was asked for, after the merge.
    pub asked: ResolvConf,
    /// Whether the platform's nameservers are used because no requested one can be (`dns-platform-fallback`).
    pub fallback: bool,
    /// Files of ours that are there, by path, but for the one that kubelet reads.
    pub ours: Vec<String>,
    /// Links and what was given on each.
    pub links: Vec<Link>,
    /// Every nameserver that is in use or asked for, and how it is.
    pub judged: Vec<Judged>,
    /// Nameservers that may not be used.
    pub collisions: Vec<Collision>,
    /// Why nothing, or not all, was done.
    pub refusals: Vec<Refusal>,
    /// What was done in the pass, in words.
    pub done: Vec<String>,
    /// What was reloaded in the pass.
    pub reloaded: Vec<Service>,
    /// Why the pass failed.
    pub error: Option<String>,
    /// From the pass's beginning to the first verified answer, in milliseconds.
    pub verified_after_ms: Option<u64>,
    /// From power-on to the first verified answer of this boot, in milliseconds.
    pub verified_at_boottime_ms: Option<u64>,
    /// Passes of this boot that changed something.
    pub changes: u32,
    /// Passes of this boot that were put back.
    pub rollbacks: u32,
    /// The steps that were put back in the last pass that tried them: they are not tried again soon.
    pub put_back: Vec<Step>,
    /// When that was, `CLOCK_BOOTTIME`.
    pub put_back_at_boottime_ns: u64,
    /// How many questions the pass has asked each nameserver.
    pub questions: BTreeMap<IpAddr, u32>,
    /// When kubelet's drop-in was changed in this boot, `CLOCK_BOOTTIME`; 0 for never.
    pub kubelet_told_at_boottime_ns: u64,
    /// Kubelet's drop-in, while kubelet runs since before that.
    pub kubelet_waits_for: Option<String>,
    /// What somebody should know.
    pub findings: Vec<Finding>,
}

impl DnsState {
    /// One line for people: states, errors, and what the last run did.
    pub fn summary(&self) -> String {
        let mut parts = vec![self.standing.word().to_owned()];
        if self.standing != Standing::Off {
            let nameservers = self.effective.shown_nameservers().join(", ");
            let nameservers = if nameservers.is_empty() {
                "no nameserver".to_owned()
            } else {
                nameservers
            };
            parts.push(format!("{nameservers} by {}", self.owner.name()));
        }
        parts.extend(self.error.clone());
        parts.extend(self.refusals.iter().map(|refusal| refusal.message.clone()));
        if !self.done.is_empty() {
            parts.push(format!("did {}", self.done.join(", ")));
        }
        parts.extend(self.verified_after_ms.map(|ms| format!("answered after {ms} ms")));
        parts.join("; ")
    }

    /// How long ago it was written, in milliseconds.
    pub fn age_ms(&self, boottime_ns: u64) -> u64 {
        boottime_ns.saturating_sub(self.at_boottime_ns) / 1_000_000
    }

    /// Whether there is no nameserver and none is wanted: nobody hands one out, none is set, and none is in use. There is nothing then that could be put right.
    pub fn knows_nobody(&self) -> bool {
        let known = self
            .refusals
            .iter()
            .all(|one| one.kind == RefusalKind::NothingVerified);
        known && self.asked.nameservers.is_empty() && self.effective.nameservers.is_empty()
    }

    /// The nameservers that metrics and the report show: in use or asked for, each once.
    pub fn shown(&self) -> impl Iterator<Item = IpAddr> {
        let in_use = &self.effective.nameservers;
        let others = self.asked.nameservers.iter().filter(|one| !in_use.contains(one));
        in_use.iter().chain(others).copied()
    }
}

/// How it stands, by what is in use and what it answered. What is worst comes first; [`Standing::RolledBack`] is known to the pass alone.
pub fn standing(asked: &Asked, seen: &Seen, plan: &Plan) -> Standing {
    if asked.manage == DnsManage::Off {
        return Standing::Off;
    }
    let now = effective(seen);
    let known = |nameserver| plan.judged.iter().find(|one| one.nameserver == nameserver);
    if !now.nameservers.is_empty() && now.nameservers.iter().all(|one| known(*one).is_none()) {
        return Standing::Unknown;
    }
    let answers = |nameserver| known(nameserver).is_some_and(|one| one.health.is_usable());
    if !now.nameservers.iter().any(|one| answers(*one)) {
        return Standing::Broken;
    }
    let collides = |nameserver| plan.collisions.iter().any(|one| one.nameserver == nameserver);
    if now.nameservers.iter().any(|one| collides(*one)) {
        return Standing::Colliding;
    }
    match &plan.choice {
        Some(choice) if is_in_use(seen, choice.conf()) && !plan.is_fallback() => Standing::Verified,
        _ => Standing::Differs,
    }
}

#[cfg(test)]
mod tests;
