//! `dns`: the guest's DNS from `/run/virtfleet/state/dns.json`, as one item for all of it and one
//! per nameserver with the DNS watch's results; and its findings.

use std::net::IpAddr;

use serde_json::{Value, json};
use virtfleet_agent_core::dns::state::{DnsState, DnsStatus};
use virtfleet_agent_host::Roots;
use virtfleet_agent_state::{DNS_STATE, DnsHistory, dns_history::NameserverHistory};
use virtfleet_wire::{
    finding::Finding,
    report::{Clock, Section, SectionStatus},
    settings::DnsManage,
};

/// Section and findings of DNS.
pub(super) struct Dns {
    pub(super) section: Section,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn read(
    roots: &Roots,
    boot_id: &str,
    now: &Clock,
    history: &DnsHistory,
    manage: DnsManage,
) -> Dns {
    let state = match DNS_STATE.read(roots, boot_id) {
        Ok(state) => state,
        Err(error) => {
            let reason = format!("{DNS_STATE}: {error}");
            let (status, state) = match (error.is_absent(), manage) {
                // The settings say so without a reconcile run.
                (true, DnsManage::Off) => (SectionStatus::Ok, DnsStatus::Off),
                (true, _) => (SectionStatus::Unknown, DnsStatus::Unknown),
                (false, _) => (SectionStatus::Failed, DnsStatus::Unknown),
            };
            let items = vec![json!({"state": state.word(), "reason": reason})];
            return Dns {
                section: Section {
                    status,
                    items,
                    ..Section::default()
                },
                findings: Vec::new(),
            };
        }
    };
    let status = match state.standing {
        _ if state.error.is_some() => SectionStatus::Failed,
        DnsStatus::Verified | DnsStatus::Off => SectionStatus::Ok,
        DnsStatus::Unknown => SectionStatus::Unknown,
        _ => SectionStatus::Partial,
    };
    let heard = history.snapshot();
    let nameservers = state.shown().map(|address| nameserver(&state, &heard, address));
    Dns {
        section: Section {
            status,
            age_ms: state.age_ms(now.boottime_ns),
            items: std::iter::once(whole(&state)).chain(nameservers).collect(),
            truncated: false,
        },
        findings: state.findings,
    }
}

fn whole(state: &DnsState) -> Value {
    let refusals: Vec<Value> = state
        .refusals
        .iter()
        .map(|refusal| {
            json!({
                "kind": refusal.kind,
                "message": refusal.message,
                "remedy": refusal.remedy,
            })
        })
        .collect();
    let conf = |conf: &virtfleet_agent_core::dns::ResolvConf| {
        json!({
            "nameservers": conf.shown_nameservers(),
            "searches": conf.searches,
            "options": conf.option_words(),
        })
    };
    json!({
        "state": state.standing.word(),
        "manage": state.manage,
        "owner": state.owner,
        "ownerBecause": state.owner_because,
        "effective": conf(&state.effective),
        "asked": conf(&state.asked),
        "refusals": refusals,
        "done": state.done,
        "error": state.error,
        "verifiedAfterMs": state.verified_after_ms,
        "verifiedAtBoottimeMs": state.verified_at_boottime_ms,
        "changes": state.changes,
        "rollbacks": state.rollbacks,
    })
}

fn nameserver(state: &DnsState, heard: &[NameserverHistory], address: IpAddr) -> Value {
    let judged = state.judged.iter().find(|one| one.nameserver == address);
    let collision = state.collisions.iter().find(|one| one.nameserver == address);
    let heard = heard.iter().find(|one| one.nameserver == address);
    let last: Vec<Value> = heard
        .into_iter()
        .flat_map(|heard| &heard.results)
        .map(|one| {
            json!({
                "atBoottimeNs": one.at_boottime_ns,
                "outcome": one.outcome,
                "micros": one.micros,
            })
        })
        .collect();
    json!({
        "nameserver": address.to_string(),
        "inUse": state.effective.nameservers.contains(&address),
        "asked": state.asked.nameservers.contains(&address),
        "health": judged.map(|one| one.health),
        "because": judged.map(|one| one.because.clone()),
        "micros": judged.and_then(|one| one.micros),
        "collision": collision.map(|one| json!({"kind": one.kind, "now": one.now, "with": one.with, "givenBy": one.given_by})),
        "watched": last,
    })
}
