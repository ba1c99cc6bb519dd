//! Splits a sorted list into pages. A page starts after the key of the last item of the previous
//! page, so that items added or removed between two requests neither repeat nor hide others.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use virtfleet_collector_core::view::{FleetSnapshot, List};
use virtfleet_wire::ids::{ClusterName, Namespace};

use super::{error::ApiError, query::Query};

/// Characters that are not percent-encoded in a token; `/` separates the parts of the key.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// The page of `items` selected by `query` (`limit`, `continue`). `items` are sorted by `key`,
/// which is unique.
pub(super) fn page<T, const N: usize>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> [&str; N],
    query: &Query,
    snapshot: &FleetSnapshot,
) -> Result<List<T>, ApiError> {
    page_of(items, key, query, snapshot, usize::MAX)
}

/// As [`page`], with a default for `limit`.
pub(super) fn page_of<T, const N: usize>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> [&str; N],
    query: &Query,
    snapshot: &FleetSnapshot,
    limit: usize,
) -> Result<List<T>, ApiError> {
    let after = query.text("continue").map(parse_token::<N>).transpose()?;
    let after = after.as_ref().map(|parts| parts.each_ref().map(String::as_str));
    let mut rest = items
        .into_iter()
        .filter(|item| after.is_none_or(|after| key(item) > after));
    let limit = query
        .number("limit")
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(limit);
    let items: Vec<T> = rest.by_ref().take(limit).collect();
    let more = rest.next().is_some();
    Ok(List {
        continue_token: items.last().filter(|_| more).map(|item| token(key(item))),
        items,
        revision: snapshot.revision,
        partial: is_partial(query, snapshot),
    })
}

/// Whether items selected by `query` may be missing in the inventory.
fn is_partial(query: &Query, snapshot: &FleetSnapshot) -> bool {
    let gaps = &snapshot.gaps;
    let serves = |namespace: &Namespace| {
        let mut clusters = snapshot.clusters.iter();
        clusters.any(|one| one.namespace == *namespace && query.admits("cluster", Some(one.name.as_str())))
    };
    let vms = |namespace: &Namespace| {
        query.admits("namespace", Some(namespace.as_str())) && (!query.has("cluster") || serves(namespace))
    };
    let nodes =
        |cluster: &ClusterName| query.has("cluster") && query.admits("cluster", Some(cluster.as_str()));
    snapshot.partial || gaps.namespaces.iter().any(vms) || gaps.clusters.iter().any(nodes)
}

fn token<const N: usize>(key: [&str; N]) -> String {
    key.map(|part| utf8_percent_encode(part, ESCAPED).to_string())
        .join("/")
}

fn parse_token<const N: usize>(text: &str) -> Result<[String; N], ApiError> {
    let refuse = || {
        ApiError::invalid(
            format!("the parameter \"continue\" is {text:?}, which is not a token of this path"),
            "pass the \"continue\" of the previous page unchanged, percent-encoded; or start again without it",
        )
    };
    let parts = text
        .split('/')
        .map(|part| {
            percent_decode_str(part)
                .decode_utf8()
                .map(std::borrow::Cow::into_owned)
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| refuse())?;
    parts.try_into().map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use virtfleet_collector_core::view::Gaps;

    use super::{super::param, *};

    fn query_for(limit: usize, token: Option<&str>) -> Query {
        let mut uri = format!("/x?limit={limit}");
        if let Some(token) = token {
            uri.push_str("&continue=");
            uri.extend(utf8_percent_encode(token, NON_ALPHANUMERIC));
        }
        Query::parse(&[param::PAGING], &uri.parse().unwrap()).unwrap()
    }

    #[test]
    fn foreign_tokens_are_rejected() {
        for bad in ["a", "a/b/c", "%FF/b"] {
            let none: [(&str, &str); 0] = [];
            let list = page(
                none,
                |&(a, b)| [a, b],
                &query_for(1, Some(bad)),
                &FleetSnapshot::default(),
            );
            assert_eq!(list.unwrap_err().code, "invalid_parameter", "{bad}");
        }
    }

    #[test]
    fn a_gap_affects_only_its_scope() {
        let of = |gaps: Gaps, partial: bool, query: &str| {
            let fleet = FleetSnapshot {
                partial,
                gaps,
                ..FleetSnapshot::default()
            };
            let params = [param::VM_FILTERS, param::PAGING];
            is_partial(
                &Query::parse(&params, &format!("/x?{query}").parse().unwrap()).unwrap(),
                &fleet,
            )
        };
        let blue = || Gaps {
            clusters: ["blue".parse().unwrap()].into(),
            ..Gaps::default()
        };
        for (query, partial) in [
            ("", false),
            ("cluster=green", false),
            ("cluster=green,blue", true),
        ] {
            assert_eq!(of(blue(), false, query), partial, "{query}");
            assert!(of(blue(), true, query), "{query}");
        }
        let tenant = || Gaps {
            namespaces: ["tenant".parse().unwrap()].into(),
            ..Gaps::default()
        };
        for (query, partial) in [("", true), ("namespace=other", false), ("namespace=tenant", true)] {
            assert_eq!(of(tenant(), false, query), partial, "{query}");
        }
    }

    proptest! {
        #[test]
        fn pages_make_up_the_whole_list(keys in prop::collection::btree_set((".{0,4}", ".{0,4}"), 0..40), limit in 1usize..9) {
            let snapshot = FleetSnapshot::default();
            let mut seen = Vec::new();
            let mut next: Option<String> = None;
            loop {
                let list = page(keys.iter(), |(a, b)| [a, b], &query_for(limit, next.as_deref()), &snapshot).unwrap();
                prop_assert!(list.items.len() <= limit);
                seen.extend(list.items.into_iter().cloned());
                match list.continue_token {
                    Some(token) => next = Some(token),
                    None => break,
                }
            }
            prop_assert_eq!(seen.len(), keys.len());
            prop_assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), keys);
        }
    }
}
