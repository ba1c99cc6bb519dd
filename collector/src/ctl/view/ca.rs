//! `virtfleetctl ca`.

use super::{ViewOptions, sheet::Sheet};
use crate::{
    ca::{CaStatus, RootRole},
    ctl::{
        client::ApiResponse,
        fail::Fail,
        table::{Cell, Table, Tone},
    },
};

/// Digits of a fingerprint without `-o wide`.
const SHORT_FINGERPRINT_CHARS: usize = 16;

pub(in crate::ctl) fn ca(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let status: CaStatus = answer.read()?;
    let mut headers = vec!["KIND", "ROLE", "SHA256", "VALID-UNTIL", "MANAGED-BY"];
    if options.wide {
        headers.extend(["VALID-FROM", "SERIAL"]);
    }
    let mut table = Table::new(&headers);
    for root in &status.roots {
        let tone = match root.role {
            RootRole::Signs => Tone::Good,
            RootRole::Trusted | RootRole::CrossSigned => Tone::Plain,
        };
        let digits = if options.wide {
            usize::MAX
        } else {
            SHORT_FINGERPRINT_CHARS
        };
        let fingerprint: String = root.sha256.chars().take(digits).collect();
        let mut row = vec![
            Cell::new(root.kind.as_str()),
            Cell::toned(root.role.as_str(), tone),
            Cell::new(fingerprint),
            Cell::new(&root.not_after),
            Cell::maybe(root.managed_by.as_ref()),
        ];
        if options.wide {
            row.extend([&root.not_before, &root.serial].map(Cell::new));
        }
        table.rows.push(row);
    }
    let mut sheet = Sheet::new(options);
    sheet.pair("Trust domain", Some(&status.trust_domain));
    sheet.pair("Stored in", Some(&status.storage));
    sheet.pair("Denied serials", Some(status.denied_serials));
    sheet.section("Roots");
    sheet.table(&table);
    sheet.section("Next");
    for step in &status.next_steps {
        sheet.text(step);
    }
    Ok(sheet.finish())
}
