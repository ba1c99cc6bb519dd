//! Limits the number of findings: the most severe come first, and surplus ones of one id are summed
//! up.

use std::collections::BTreeMap;

use virtfleet_wire::finding::Finding;

use super::words::few;

/// Maximum number of virtio findings. There are fewer than half as many ids, so one finding and one
/// sum per id always fit.
pub const MAX_FINDINGS: usize = 50;
/// Maximum number of individual findings per id.
const MAX_PER_ID: usize = 8;
/// Maximum length of a message and of a fact in characters: some contain names and file contents.
const MAX_TEXT_CHARS: usize = 600;

pub(super) fn bounded(mut all: Vec<Finding>) -> Vec<Finding> {
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let mut of: BTreeMap<String, usize> = BTreeMap::new();
    for finding in &all {
        *of.entry(finding.id.clone()).or_default() += 1;
    }
    // A sum counts as one finding, too.
    let places = |each: usize| -> usize { of.values().map(|count| (*count).min(each + 1)).sum() };
    let each = (1..=MAX_PER_ID).rev().find(|each| places(*each) <= MAX_FINDINGS);
    let each = each.unwrap_or(1);
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    let mut rest: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    let mut kept = Vec::new();
    for finding in all {
        let number = told.entry(finding.id.clone()).or_default();
        // If only one is left, it is reported itself instead of a sum.
        if *number < each || of[&finding.id] == each + 1 {
            *number += 1;
            kept.push(finding);
        } else {
            rest.entry(finding.id.clone()).or_default().push(finding);
        }
    }
    kept.extend(rest.into_values().filter_map(|rest| sum(&rest)));
    kept.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    kept.truncate(MAX_FINDINGS);
    kept.into_iter().map(short).collect()
}

/// Sums up the surplus findings of one id.
fn sum(rest: &[Finding]) -> Option<Finding> {
    let first = rest.first()?;
    let names = few(rest.iter().map(|one| one.subject.name.as_str()));
    let message = format!("also affected: {} more: {names}", rest.len());
    let subject = (first.subject.kind.as_str(), "(more)");
    let sum = Finding::new(&first.id, first.severity, subject, &first.reason, message);
    Some(sum.with("more", rest.len()).remedy(first.remedy.clone()))
}

fn short(mut finding: Finding) -> Finding {
    let values = finding.evidence.values_mut();
    for text in values.chain([
        &mut finding.message,
        &mut finding.subject.name,
        &mut finding.remedy,
    ]) {
        if let Some((at, _)) = text.char_indices().nth(MAX_TEXT_CHARS) {
            text.truncate(at);
            text.push('…');
        }
    }
    finding
}
