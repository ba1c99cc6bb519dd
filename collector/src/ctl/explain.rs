//! `virtfleetctl explain`: explains a finding from the embedded documentation.

use super::{fail::Fail, text::safe};

/// Pages with tables of findings, and the reporter of these findings.
const PAGES: [(&str, &str); 2] = [
    (
        "the collector",
        include_str!("../../../docs/findings-collector.md"),
    ),
    (
        "the agent in the guest",
        include_str!("../../../docs/findings.md"),
    ),
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct FindingRow<'a> {
    by: &'static str,
    ids: Vec<&'a str>,
    severity: &'a str,
    subject: Option<&'a str>,
    when: &'a str,
    remedy: &'a str,
}

fn rows() -> impl Iterator<Item = FindingRow<'static>> {
    PAGES.into_iter().flat_map(|(by, page)| {
        page.lines().filter_map(move |line| {
            let cells: Vec<&str> = line
                .strip_prefix('|')?
                .strip_suffix('|')?
                .split(" | ")
                .map(str::trim)
                .collect();
            // Every second part is between backticks.
            let ids: Vec<&str> = cells.first()?.split('`').skip(1).step_by(2).collect();
            let (subject, rest) = match cells.as_slice() {
                [_, severity, when, remedy] => (None, [*severity, *when, *remedy]),
                [_, severity, subject, when, remedy] => (Some(*subject), [*severity, *when, *remedy]),
                _ => return None,
            };
            let [severity, when, remedy] = rest;
            (!ids.is_empty()).then_some(FindingRow {
                by,
                ids,
                severity,
                subject,
                when,
                remedy,
            })
        })
    })
}

/// The explanation of a finding, as lines.
///
/// # Errors
/// No finding has this id.
pub(super) fn explain(id: &str) -> Result<String, Fail> {
    let plain = id.rsplit(['/', ':']).next().unwrap_or(id);
    let named = |row: &FindingRow<'_>| row.ids.contains(&plain);
    // Ids of refusals contain the kind of the refusal.
    let of_kind = |row: &FindingRow<'_>| plain.starts_with("disk-") && row.ids.contains(&"disk-<kind>");
    let Some(row) = rows().find(named).or_else(|| rows().find(of_kind)) else {
        return Err(unknown(id, plain));
    };
    let lines = [
        ("Id", Some(id)),
        ("Reported by", Some(row.by)),
        ("Severity", Some(row.severity)),
        ("About", row.subject),
        ("When", Some(row.when)),
        ("What to do", Some(row.remedy)),
    ];
    let lines = lines.into_iter().filter_map(|(name, value)| {
        let value = value.filter(|value| !value.is_empty())?;
        Some(format!("{:<13}{}\n", format!("{name}:"), safe(value, usize::MAX)))
    });
    Ok(lines.collect())
}

fn unknown(id: &str, plain: &str) -> Fail {
    let near = rows()
        .flat_map(|row| row.ids)
        .max_by(|a, b| strsim::jaro_winkler(a, plain).total_cmp(&strsim::jaro_winkler(b, plain)));
    let near = near.filter(|near| strsim::jaro_winkler(near, plain) > 0.8);
    let hint = near.map_or_else(
        || "virtfleetctl findings lists the present findings".to_owned(),
        |near| format!("did you mean {near}?"),
    );
    Fail::NotFound(format!("no finding has the id {id:?}: {hint}"))
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::findings;

    use super::*;

    #[test]
    fn every_finding_of_either_program_is_explained() {
        for id in [
            findings::TENANT_AMBIGUOUS,
            findings::DUPLICATE_ADDRESS,
            findings::INVENTORY_KIND_ABSENT,
            "dns-loop",
            "disk-inodes",
            "disk-foreign-data",
        ] {
            let text = explain(id).unwrap();
            assert!(
                text.starts_with(&format!("Id:          {id}\n")) && text.contains("\nWhat to do:  "),
                "{text}"
            );
        }
        assert!(explain("disk-space").unwrap().contains("the agent in the guest"));
        assert!(rows().count() > 60);
    }

    #[test]
    fn unknown_ids_are_reported_with_the_most_similar_one() {
        let error = explain("dns-lop").unwrap_err();
        assert_eq!(error.exit_code(), 4);
        assert!(error.to_string().contains("dns-loop"), "{error}");
        assert!(
            explain("x")
                .unwrap_err()
                .to_string()
                .contains("virtfleetctl findings")
        );
    }
}
