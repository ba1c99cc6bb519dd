//! Refusals that an admin may approve: the scope of their evidence, and the validity of an earlier
//! approval.

use super::{
    super::{
        journal::{Approval, Evidence},
        plan::{Refusal, RefusalKind},
        probe::Probe,
        writes::WriteMark,
    },
    case::Case,
    content::Verdict,
};

/// Returns a refusal that an admin may approve. Its evidence also proves that the disk was not
/// written since the agent read it. If the whole disk was read, the digest proves that, also after
/// a reboot; otherwise the write counters of this boot do.
pub(super) fn approvable(
    case: &Case<'_>,
    kind: RefusalKind,
    message: String,
    mut facts: Vec<(&str, String)>,
) -> Refusal {
    let (whole, writes) = match case.probe() {
        Probe::Blank(blank) => (blank.is_whole(), blank.writes.clone()),
        Probe::HasData(content) => (content.whole, content.writes.clone()),
        Probe::Unknown(_) => (false, WriteMark::default()),
    };
    if whole {
        facts.push(("read", "all".to_owned()));
        return case.refuse(kind, message, approve(case), facts);
    }
    let Some(counters) = writes.counters.filter(|_| writes.is_trusted()) else {
        let remedy = "set `proof: full`, so that the agent reads the whole disk and you can approve it: the kernel does not count \
                      writes of this disk (Linux below 5.15, or queue/iostats is 0), so a write after the approval would not be noticed";
        return case.refuse(kind, message, remedy, facts).beyond_approval();
    };
    facts.push(("read", "partly".to_owned()));
    facts.push(("bootId", writes.boot_id.clone()));
    facts.push(("diskseq", writes.diskseq.unwrap_or_default().to_string()));
    facts.push(("sectorsWritten", counters.written.to_string()));
    facts.push(("sectorsDiscarded", counters.discarded.to_string()));
    case.refuse(kind, message, approve(case), facts)
}

fn approve(case: &Case<'_>) -> String {
    format!(
        "find out why. If you need no data on it: `virtfleet-agent disks approve {} --evidence` with the evidence of this refusal",
        case.disk.name
    )
}

/// Makes the filesystem if an admin approved this refusal. If the approval refers to another state
/// of the disk, the message lists the differences.
pub(super) fn approved_or(case: &Case<'_>, mut refusal: Refusal) -> Result<Verdict, Refusal> {
    let approvals: Vec<&Approval> = case
        .journal
        .approvals
        .iter()
        .filter(|approval| approval.name == case.disk.name)
        .collect();
    let allowed = refusal.kind.may_be_approved() && !refusal.evidence.is_empty();
    if !allowed || approvals.iter().all(|approval| approval.hash != refusal.evidence) {
        if let Some(approval) = approvals.iter().rfind(|approval| !approval.facts.is_empty()) {
            let changes = changes(&approval.facts, &refusal.facts);
            refusal.message = format!(
                "{}; the approval refers to another state of the disk: {changes}",
                refusal.message
            );
        }
        return Err(refusal);
    }
    let digest = refusal.facts.iter().find(|(name, _)| name == "digest");
    let (place, writes) = match case.probe() {
        Probe::HasData(content) => (content.apart, content.writes.clone()),
        Probe::Blank(blank) => (None, blank.writes.clone()),
        Probe::Unknown(_) => (None, WriteMark::default()),
    };
    Ok(Verdict::Make {
        evidence: Evidence::Approved {
            proof: case.disk.proof,
            digest: digest.map(|(_, digest)| digest.clone()),
            place,
            writes,
            hash: refusal.evidence,
        },
        clear: false,
    })
}

/// Describes the differences between the facts of an approval and the current ones.
pub(super) fn changes(then: &[(String, String)], now: &[(String, String)]) -> String {
    let value = |facts: &[(String, String)], name: &str| {
        let fact = facts.iter().find(|(fact, _)| fact == name);
        fact.map_or("nothing".to_owned(), |(_, value)| value.clone())
    };
    let mut names: Vec<&str> = then.iter().chain(now).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let changed: Vec<String> = names
        .into_iter()
        .filter(|name| value(then, name) != value(now, name))
        .map(|name| format!("{name} was {} and is {}", value(then, name), value(now, name)))
        .collect();
    if changed.is_empty() {
        "another kind of refusal, or another disk".to_owned()
    } else {
        changed.join(", ")
    }
}
