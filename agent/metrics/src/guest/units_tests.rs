//! `guest_units` with a systemd that refuses queries.

use std::{collections::BTreeMap, path::Path};

use virtfleet_agent_core::dbus::Writer;
use virtfleet_agent_host::dbus::Bus;
use virtfleet_wire::settings::MetricsSettings;

use super::*;
use crate::{Entry, Filter, Registry};

/// Answer to a query for these units; the other field answers the query for the number of failed
/// units.
type UnitAnswers = fn(&[&str]) -> Result<(), &'static str>;

/// Marks a missing answer in place of an error's name.
const NO_ANSWER: &str = "";

struct Systemd(UnitAnswers, Result<u32, &'static str>);

impl ServiceCalls for Systemd {
    fn bus(&self, _: &Path) -> Result<Box<dyn Bus>, BusError> {
        Ok(Box::new(Self(self.0, self.1)))
    }
    fn healthz(&self, _: u16) -> Option<u16> {
        Some(200)
    }
    fn reach(&self, _: &Path) -> SocketState {
        SocketState::Absent
    }
}

impl Bus for Systemd {
    fn call_all(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, BusError> {
        let mut requested = calls.iter().filter_map(|call| call.list);
        if requested.any(|names| (self.0)(names) == Err(NO_ANSWER)) {
            return Err(BusError::TimedOut);
        }
        let answer = |call: &Call<'_>| {
            let mut body = Writer::default();
            let answer = match call.list {
                Some(names) => (self.0)(names).map(|()| list(&mut body, names)),
                None => self.1.map(|count| {
                    body.signature("u").u32(count);
                }),
            };
            match answer {
                Ok(()) => Answer::Body {
                    bytes: body.into_bytes(),
                    big: false,
                },
                Err(name) => Answer::Error(name.to_owned()),
            }
        };
        Ok(calls.iter().map(answer).collect())
    }
}

fn list(body: &mut Writer, names: &[&str]) {
    body.array(8, |rows| {
        for name in names {
            rows.align(8)
                .string(name)
                .string("")
                .string("loaded")
                .string("active");
            rows.string("")
                .string("")
                .string("/unit")
                .u32(0)
                .string("")
                .string("/");
        }
    });
}

/// The page, and why the collector failed.
fn scrape(unit_answers: UnitAnswers, count: Result<u32, &'static str>) -> (String, Option<String>) {
    scrape_of(unit_answers, count, None)
}

/// The same with a limit of series.
fn scrape_of(
    unit_answers: UnitAnswers,
    count: Result<u32, &'static str>,
    max_series: Option<u32>,
) -> (String, Option<String>) {
    static TABLE: [Entry; 1] = [Entry::on("guest_units", "", new)];
    let settings = MetricsSettings {
        max_series,
        ..MetricsSettings::default()
    };
    let mut context = Context::new(Roots::default(), settings);
    context.services = Arc::new(Systemd(unit_answers, count));
    let mut registry = Registry::with_table(&TABLE, context, &BTreeMap::new()).unwrap();
    let mut page = Page::new();
    registry.scrape(&Filter::default(), &mut page).unwrap();
    let reason = registry.reason("guest_units").map(ToOwned::to_owned);
    (page.to_text(), reason)
}

fn up(page: &str, service: &str) -> bool {
    page.contains(&format!("service_up{{service=\"{service}\",by=\"unit\"}} 1"))
}

#[test]
fn a_broken_unit_is_reported_and_does_not_hide_others() {
    let (page, reason) = scrape(
        |names| match names {
            ["kubelet.service"] => Ok(()),
            ["crio.service"] => Err("org.freedesktop.systemd1.NoSuchUnit"),
            _ => Err("org.freedesktop.systemd1.LoadFailed"),
        },
        Ok(0),
    );
    assert_eq!(
        reason.unwrap(),
        "cannot query systemd: containerd.service: org.freedesktop.systemd1.LoadFailed"
    );
    assert!(up(&page, "kubelet"), "{page}");
    assert!(!up(&page, "containerd") && !up(&page, "crio"), "{page}");
    assert!(page.contains("virtfleet_guest_units_failed 0\n"), "{page}");
    assert!(page.contains("healthz_status 200\n"), "{page}");
    assert!(
        page.contains("node_scrape_collector_success{collector=\"guest_units\"} 0\n"),
        "{page}"
    );
}

#[test]
fn series_dropped_from_a_partial_result_are_counted() {
    let denied = "org.freedesktop.DBus.Error.AccessDenied";
    // Three units, and two series of kubelet's health.
    let (page, reason) = scrape_of(|_| Ok(()), Err(denied), Some(2));
    assert!(reason.is_some());
    assert!(up(&page, "kubelet") && !up(&page, "crio"), "{page}");
    assert!(
        page.contains("virtfleet_agent_series_dropped{collector=\"guest_units\"} 3\n"),
        "{page}"
    );
}

#[test]
fn a_silent_bus_is_waited_for_once() {
    let (page, reason) = scrape(
        |names| match names {
            ["kubelet.service"] => Ok(()),
            [_] => Err(NO_ANSWER),
            _ => Err("org.freedesktop.systemd1.LoadFailed"),
        },
        Ok(0),
    );
    assert_eq!(
        reason.unwrap(),
        "cannot query systemd: the system bus did not answer in time"
    );
    assert!(up(&page, "kubelet"), "{page}");
    let (_, reason) = scrape(
        |names| match names {
            ["failed"] => Err(NO_ANSWER),
            _ => Err("org.freedesktop.systemd1.LoadFailed"),
        },
        Ok(1),
    );
    assert_eq!(
        reason.unwrap(),
        "cannot query systemd: the system bus did not answer in time"
    );
}

#[test]
fn a_refusal_is_a_failure_and_an_absent_unit_is_not() {
    let denied = "org.freedesktop.DBus.Error.AccessDenied";
    let (page, reason) = scrape(|_| Ok(()), Err(denied));
    assert_eq!(
        reason.unwrap(),
        format!("cannot query systemd: NFailedUnits: {denied}")
    );
    assert!(up(&page, "kubelet") && up(&page, "crio"), "{page}");
    for away in [
        "org.freedesktop.DBus.Error.ServiceUnknown",
        "org.freedesktop.DBus.Error.NameHasNoOwner",
        "org.freedesktop.DBus.Error.UnknownProperty",
        "org.freedesktop.DBus.Error.Spawn.ChildExited",
    ] {
        let (page, reason) = scrape(|_| Ok(()), Err(away));
        assert_eq!(reason, None, "{away}");
        assert!(!page.contains("units_failed"), "{page}");
    }
    let (page, reason) = scrape(|_| Ok(()), Ok(3));
    assert_eq!(reason, None);
    assert!(
        page.contains("virtfleet_guest_unit_failed{name=\"failed\"} 1"),
        "{page}"
    );
}
