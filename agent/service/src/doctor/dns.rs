//! The guest's DNS: one line for all of it and one for each nameserver that is in use or requested,
//! with the next command.

use std::net::IpAddr;

use virtfleet_agent_core::dns::{
    answers::Health,
    state::{DnsState, DnsStatus},
};
use virtfleet_wire::settings::DnsManage;

use super::{CheckResult, CheckStatus, Seen};

const NEXT_COMMAND: &str = "sudo virtfleet-agent plan dns";

pub(super) fn dns(seen: &Seen) -> Vec<CheckResult> {
    let state = match &seen.dns {
        Ok(state) => state,
        // DNS is not managed.
        Err(_) if seen.settings.config.dns.manage == DnsManage::Off => return Vec::new(),
        Err(reason) => {
            return vec![CheckResult {
                status: CheckStatus::Warn,
                what: "resolver".to_owned(),
                detail: reason.clone(),
                next: NEXT_COMMAND.to_owned(),
            }];
        }
    };
    let mut lines = vec![whole(state)];
    if state.standing != DnsStatus::Off {
        lines.extend(state.shown().filter_map(|address| nameserver(state, address)));
    }
    lines
}

fn whole(state: &DnsState) -> CheckResult {
    let status = match state.standing {
        DnsStatus::Broken if state.has_no_nameserver() => CheckStatus::Warn,
        DnsStatus::Broken | DnsStatus::RolledBack => CheckStatus::Fail,
        _ if state.error.is_some() => CheckStatus::Fail,
        DnsStatus::Verified | DnsStatus::Off => CheckStatus::Ok,
        DnsStatus::Colliding | DnsStatus::Differs | DnsStatus::Unknown => CheckStatus::Warn,
    };
    let detail = state.summary();
    let mut remedies = state.findings.iter().map(|finding| finding.remedy.as_str());
    let remedy = remedies.find(|remedy| !remedy.is_empty());
    CheckResult {
        status,
        what: "resolver".to_owned(),
        detail,
        next: if status == CheckStatus::Ok {
            String::new()
        } else {
            remedy.unwrap_or(NEXT_COMMAND).to_owned()
        },
    }
}

fn nameserver(state: &DnsState, address: IpAddr) -> Option<CheckResult> {
    let judged = state.judged.iter().find(|one| one.nameserver == address)?;
    let in_use = state.effective.nameservers.contains(&address);
    let collision = state.collisions.iter().find(|one| one.nameserver == address);
    let well = judged.health == Health::Healthy && collision.is_none();
    let status = if well || !in_use {
        CheckStatus::Ok
    } else {
        CheckStatus::Warn
    };
    let mut detail = format!("{}: {}", judged.health.word(), judged.because);
    if let Some(one) = collision {
        let when = if one.now { "collides" } else { "will collide" };
        detail = format!("{when} with {}, from {}; {detail}", one.with, one.given_by);
    }
    if !in_use {
        detail.push_str("; not in use");
    }
    Some(CheckResult {
        status,
        what: format!("nameserver {address}"),
        detail,
        next: if status == CheckStatus::Ok {
            String::new()
        } else {
            NEXT_COMMAND.to_owned()
        },
    })
}
