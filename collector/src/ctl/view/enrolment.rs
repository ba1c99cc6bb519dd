//! `virtfleetctl enrolment`, and the enrolment of one VM.

use virtfleet_collector_core::{
    enrolment::EnrolmentState,
    view::{EnrolmentView, List},
};

use super::{ViewOptions, sheet::Sheet};
use crate::{
    ctl::{
        client::ApiResponse,
        fail::Fail,
        table::{Cell, Table, Tone},
        text::{age, since},
    },
    enrolment::EnrolmentItem,
};

/// Digits of a fingerprint without `-o wide`.
const SHORT_FINGERPRINT_CHARS: usize = 16;

pub(in crate::ctl) fn enrolments(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<EnrolmentItem> = answer.read()?;
    let mut headers = vec!["NAMESPACE", "NAME", "STATE", "KEY", "VALID-FOR", "SINCE"];
    if options.wide {
        headers.extend(["UID", "SERIAL"]);
    }
    let mut table = Table::new(&headers);
    for item in &list.items {
        let enrolment = &item.enrolment;
        let digits = if options.wide {
            usize::MAX
        } else {
            SHORT_FINGERPRINT_CHARS
        };
        let mut row = vec![
            Cell::new(item.namespace.as_str()),
            Cell::new(item.name.as_str()),
            Cell::toned(enrolment.state.as_str(), tone(enrolment.state)),
            Cell::maybe(fingerprint(enrolment, digits)),
            Cell::new(valid_for(enrolment, options.now)),
            Cell::new(since(options.now, enrolment.enrolled_ms)),
        ];
        if options.wide {
            row.push(Cell::new(enrolment.uid.as_str()));
            row.push(Cell::maybe(enrolment.serial.as_ref()));
        }
        table.rows.push(row);
    }
    Ok(options.table(&table, "no recorded keys"))
}

pub(in crate::ctl) fn enrolment(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let item: EnrolmentItem = answer.read()?;
    let mut sheet = Sheet::new(options);
    sheet.pair("Name", Some(&item.name));
    sheet.pair("Namespace", Some(&item.namespace));
    show(&mut sheet, &item.enrolment, options.now);
    Ok(sheet.finish())
}

/// The section of one VM's enrolment.
pub(super) fn show(sheet: &mut Sheet<'_>, enrolment: &EnrolmentView, now: u64) {
    sheet.section("Enrolment");
    sheet.toned("State", Some(enrolment.state.as_str()), tone(enrolment.state));
    sheet.pair("Key SHA256", enrolment.key_sha256);
    sheet.pair("For UID", Some(&enrolment.uid));
    sheet.pair("Serial", enrolment.serial.as_ref());
    sheet.pair("Valid for", Some(valid_for(enrolment, now)));
    sheet.pair(
        "Since",
        Some(format!("{} ago", since(now, enrolment.enrolled_ms))),
    );
}

fn fingerprint(enrolment: &EnrolmentView, digits: usize) -> Option<String> {
    let text = enrolment.key_sha256?.to_string();
    Some(text.chars().take(digits).collect())
}

fn valid_for(enrolment: &EnrolmentView, now: u64) -> String {
    match enrolment.not_after_ms.checked_sub(now) {
        Some(left) => age(left / 1000),
        None => "expired".to_owned(),
    }
}

fn tone(state: EnrolmentState) -> Tone {
    match state {
        EnrolmentState::Enrolled => Tone::Good,
        EnrolmentState::Revoked => Tone::Bad,
        EnrolmentState::Reset => Tone::Warn,
    }
}
