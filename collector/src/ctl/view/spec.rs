//! Specification against guest, on the sheet of a VM.

use virtfleet_collector_core::spec_view::{SpecCheckView, SpecResult};

use super::sheet::Sheet;
use crate::ctl::table::{Cell, Table, Tone};

/// Differences and what agrees; `wide` also shows what no guest can see.
pub(super) fn show(sheet: &mut Sheet<'_>, checks: &[SpecCheckView], wide: bool) {
    if checks.is_empty() {
        return;
    }
    sheet.section("Specification");
    let mut table = Table::new(&["FIELD", "RESULT", "ASKED", "SEEN", "WHY"]);
    let is_shown = |one: &&SpecCheckView| wide || one.result != SpecResult::NotSeen;
    for one in checks.iter().filter(is_shown) {
        let (word, tone) = match one.result {
            SpecResult::Differs if one.matters => ("differs", Tone::Bad),
            SpecResult::Differs => ("differs", Tone::Warn),
            SpecResult::Agrees => ("agrees", Tone::Good),
            SpecResult::NotSeen => ("not seen", Tone::Dim),
        };
        table.rows.push(vec![
            Cell::new(&one.path),
            Cell::toned(word, tone),
            Cell::new(&one.asked),
            Cell::maybe(one.seen.as_ref()),
            Cell::maybe(Some(&one.why).filter(|why| !why.is_empty())),
        ]);
    }
    let hidden = checks.len() - table.rows.len();
    if !table.rows.is_empty() {
        sheet.table(&table);
    }
    if hidden > 0 {
        sheet.line(&format!(
            "{hidden} fields are not visible in the guest: -o wide lists them"
        ));
    }
}
