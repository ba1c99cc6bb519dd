//! However many devices a guest has: the worst findings first, and those of one id beyond a few in one.

use std::collections::BTreeMap;

use virtfleet_wire::finding::Finding;

use super::words::few;

/// The most findings of virtio. There are fewer than half as many ids as this, so that one and a sum of the others fit of each.
pub const MOST: usize = 50;
/// The most of one id that are told one by one: a page of them says no more than a few and a number.
const OF_ONE_ID: usize = 8;
/// The longest message, and the longest piece of evidence, in characters: some come from names and from files.
const LONGEST: usize = 600;

pub(super) fn bounded(mut all: Vec<Finding>) -> Vec<Finding> {
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let mut of: BTreeMap<String, usize> = BTreeMap::new();
    for finding in &all {
        *of.entry(finding.id.clone()).or_default() += 1;
    }
    // A sum takes a place, too.
    let places = |each: usize| -> usize { of.values().map(|count| (*count).min(each + 1)).sum() };
    let each = (1..=OF_ONE_ID).rev().find(|each| places(*each) <= MOST);
    let each = each.unwrap_or(1);
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    let mut rest: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    let mut kept = Vec::new();
    for finding in all {
        let number = told.entry(finding.id.clone()).or_default();
        // The last one may as well be told itself.
        if *number < each || of[&finding.id] == each + 1 {
            *number += 1;
            kept.push(finding);
        } else {
            rest.entry(finding.id.clone()).or_default().push(finding);
        }
    }
    kept.extend(rest.into_values().filter_map(|rest| sum(&rest)));
    kept.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    kept.truncate(MOST);
    kept.into_iter().map(short).collect()
}

/// The others of one id; the first of them is among the worst.
fn sum(rest: &[Finding]) -> Option<Finding> {
    let first = rest.first()?;
    let names = few(rest.iter().map(|one| one.subject.name.as_str()));
    let message = format!("the same of {} more: {names}", rest.len());
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
        if let Some((at, _)) = text.char_indices().nth(LONGEST) {
            text.truncate(at);
            text.push('…');
        }
    }
    finding
}
