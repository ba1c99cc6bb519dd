//! `/run/virtfleet/state/dns.json`: state of the guest's DNS after the last run.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use virtfleet_wire::{finding::Finding, settings::DnsManage};

use super::{
    answers::Judged,
    asked::Asked,
    collision::Collision,
    effective::effective,
    plan::{DnsStep, Plan, Refusal, RefusalKind, Service, is_in_use},
    resolv::ResolvConf,
    seen::{Link, Owner, Seen},
};

/// Format version of the file.
pub const FORMAT: u32 = 1;

/// State of the guest's DNS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum DnsStatus {
    /// As requested, and verified.
    Verified,
    /// Nameservers answer, but the configuration differs from the requested one and may not be
    /// changed.
    Differs,
    /// A nameserver in use collides, or will collide.
    Colliding,
    /// No nameserver in use answers.
    Broken,
    /// The agent changed it, the nameservers did not answer, and the agent reverted the change.
    RolledBack,
    /// Could not be determined.
    #[default]
    Unknown,
    /// `manage: off`.
    Off,
}

impl DnsStatus {
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Name of the state in output.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Content of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsState {
    /// [`FORMAT`].
    pub v: u32,
    pub boot_id: String,
    /// Time of writing, `CLOCK_BOOTTIME` in nanoseconds.
    pub at_boottime_ns: u64,
    /// Time of writing, nanoseconds since 1970.
    pub at_ns: u64,
    /// Which changes are allowed.
    pub manage: DnsManage,
    pub standing: DnsStatus,
    /// Owner of `/etc/resolv.conf`.
    pub owner: Owner,
    /// How the owner was determined.
    pub owner_because: String,
    /// Configuration in use: the upstreams of a stub, not the stub.
    pub effective: ResolvConf,
    /// Requested configuration after the merge.
    pub asked: ResolvConf,
    /// Whether the platform's nameservers are used because no requested one can be used
    /// (`dns-platform-fallback`).
    pub fallback: bool,
    /// Paths of existing files of the agent, except the one that kubelet reads.
    pub ours: Vec<String>,
    /// Links with their assigned values.
    pub links: Vec<Link>,
    /// Health of all nameservers that are in use or requested.
    pub judged: Vec<Judged>,
    /// Nameservers that must not be used.
    pub collisions: Vec<Collision>,
    /// Reasons why nothing, or not everything, was done.
    pub refusals: Vec<Refusal>,
    /// What the last run did, one sentence each.
    pub done: Vec<String>,
    /// Services that the last run reloaded.
    pub reloaded: Vec<Service>,
    /// Error of the last run.
    pub error: Option<String>,
    /// Time from the start of the run to the first verified answer, in milliseconds.
    pub verified_after_ms: Option<u64>,
    /// Time from power-on to the first verified answer of this boot, in milliseconds.
    pub verified_at_boottime_ms: Option<u64>,
    /// Number of runs in this boot that changed something.
    pub changes: u32,
    /// Number of runs in this boot that were reverted.
    pub rollbacks: u32,
    /// Steps that the last run with these steps reverted. They are not retried soon.
    pub put_back: Vec<DnsStep>,
    /// Time of that revert, `CLOCK_BOOTTIME` in nanoseconds.
    pub put_back_at_boottime_ns: u64,
    /// Number of queries that the last run sent to each nameserver.
    pub questions: BTreeMap<IpAddr, u32>,
    /// Time when kubelet's drop-in was changed in this boot, `CLOCK_BOOTTIME` in nanoseconds; 0 for
    /// never.
    pub kubelet_told_at_boottime_ns: u64,
    /// Path of kubelet's drop-in, if kubelet has not been restarted since it was changed.
    pub kubelet_waits_for: Option<String>,
    pub findings: Vec<Finding>,
}

impl DnsState {
    /// Returns a summary in one line: states, errors, and what the last run did.
    pub fn summary(&self) -> String {
        let mut parts = vec![self.standing.word().to_owned()];
        if self.standing != DnsStatus::Off {
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

    /// Returns the age of the file in milliseconds.
    pub fn age_ms(&self, boottime_ns: u64) -> u64 {
        boottime_ns.saturating_sub(self.at_boottime_ns) / 1_000_000
    }

    /// Whether there is no nameserver and none is expected: none is assigned, set or in use. Then
    /// there is nothing to repair.
    pub fn has_no_nameserver(&self) -> bool {
        let known = self
            .refusals
            .iter()
            .all(|one| one.kind == RefusalKind::NothingVerified);
        known && self.asked.nameservers.is_empty() && self.effective.nameservers.is_empty()
    }

    /// Returns the nameservers for metrics and the report: in use or requested, without duplicates.
    pub fn shown(&self) -> impl Iterator<Item = IpAddr> {
        let in_use = &self.effective.nameservers;
        let others = self.asked.nameservers.iter().filter(|one| !in_use.contains(one));
        in_use.iter().chain(others).copied()
    }
}

/// Returns the state from the configuration in use and the answers; the most serious one wins. Only
/// the run itself sets [`DnsStatus::RolledBack`].
pub fn standing(asked: &Asked, seen: &Seen, plan: &Plan) -> DnsStatus {
    if asked.manage == DnsManage::Off {
        return DnsStatus::Off;
    }
    let now = effective(seen);
    let known = |nameserver| plan.judged.iter().find(|one| one.nameserver == nameserver);
    if !now.nameservers.is_empty() && now.nameservers.iter().all(|one| known(*one).is_none()) {
        return DnsStatus::Unknown;
    }
    let answers = |nameserver| known(nameserver).is_some_and(|one| one.health.is_usable());
    if !now.nameservers.iter().any(|one| answers(*one)) {
        return DnsStatus::Broken;
    }
    let collides = |nameserver| plan.collisions.iter().any(|one| one.nameserver == nameserver);
    if now.nameservers.iter().any(|one| collides(*one)) {
        return DnsStatus::Colliding;
    }
    match &plan.choice {
        Some(choice) if is_in_use(seen, choice.conf()) && !plan.is_fallback() => DnsStatus::Verified,
        _ => DnsStatus::Differs,
    }
}

#[cfg(test)]
mod tests;
