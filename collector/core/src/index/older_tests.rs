//! Reports of earlier agent versions, recorded in a guest, can still be read completely. A new
//! version adds its own file; the files of the two previous versions stay.

use serde_json::Value;
use virtfleet_wire::report::GuestReport;

use super::tests::{answer, small};
use crate::store::tests::key;

const REPORTS: [(&str, &str); 1] = [(
    "0.1.0",
    include_str!("../../../../tests/fixtures/reports/0.1.0.json"),
)];

/// Every value of `old` that is not in `new` under the same path.
fn lost(path: &str, old: &Value, new: &Value, into: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old {
                lost(
                    &format!("{path}.{key}"),
                    value,
                    new.get(key).unwrap_or(&Value::Null),
                    into,
                );
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                lost(&format!("{path}[{at}]"), old, new, into);
            }
        }
        (old, new) if old == new => {}
        _ => into.push(format!("{path}: {old} became {new}")),
    }
}

#[test]
fn no_value_of_an_earlier_report_is_lost() {
    for (version, text) in REPORTS {
        let old: Value = serde_json::from_str(text).unwrap();
        let read = GuestReport::from_json(text.as_bytes()).unwrap();
        let mut differences = Vec::new();
        lost("", &old, &serde_json::to_value(&read).unwrap(), &mut differences);
        assert_eq!(differences, Vec::<String>::new(), "{version}");
    }
}

#[test]
fn an_earlier_agent_shows_in_the_fleet_with_its_version() {
    for (version, text) in REPORTS {
        let mut index = small();
        let vm = key("ns", "w0");
        index.record_pull(answer(&vm, |report| {
            *report = GuestReport::from_json(text.as_bytes()).unwrap();
        }));
        let snapshot = index.snapshot();
        let view = &snapshot.vms[&vm];
        let guest = view.guest.as_ref().unwrap();
        assert_eq!(view.agent.version.as_deref(), Some(version));
        assert_eq!(
            guest.os.as_deref(),
            Some("Debian GNU/Linux 13 (trixie)"),
            "{version}"
        );
        assert_eq!((guest.disks, guest.nics), (Some(3), Some(1)), "{version}");
    }
}

/// A later version may add fields, sections and enum values.
#[test]
fn unknown_values_of_a_later_report_are_ignored() {
    let (_, text) = REPORTS[0];
    let mut later: Value = serde_json::from_str(text).unwrap();
    later["agent"]["version"] = "9.0.0".into();
    later["agent"]["mood"] = "good".into();
    later["sections"]["gpus"] = serde_json::json!({"status": "dreaming", "items": [{"name": 1}], "more": {}});
    later["findings"][0]["severity"] = "catastrophic".into();
    let mut index = small();
    let vm = key("ns", "w0");
    index.record_pull(answer(&vm, |report| {
        *report = GuestReport::from_json(later.to_string().as_bytes()).unwrap();
    }));
    let snapshot = index.snapshot();
    assert_eq!(snapshot.vms[&vm].agent.version.as_deref(), Some("9.0.0"));
    assert_eq!(snapshot.vms[&vm].guest.as_ref().unwrap().disks, Some(3));
}
