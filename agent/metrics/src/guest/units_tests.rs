//! `guest_units` with a systemd that refuses.

use std::{collections::BTreeMap, path::Path};

use virtfleet_agent_core::dbus::Writer;
use virtfleet_agent_host::dbus::Bus;
use virtfleet_wire::settings::MetricsSettings;

use super::*;
use crate::{Entry, Filter, Registry};

/// What is said to a call for these units, and to one for the number of those that failed.
type Says = fn(&[&str]) -> Result<(), &'static str>;

/// Says nothing, in place of an error's name.
const SILENCE: &str = "";

struct Systemd(Says, Result<u32, &'static str>);

impl ServiceCalls for Systemd {
    fn bus(&self, _: &Path) -> Result<Box<dyn Bus>, BusError> {
        Ok(Box::new(Self(self.0, self.1)))
    }
    fn healthz(&self, _: u16) -> Option<u16> {
        Some(200)
    }
    fn reach(&self, _: &Path) -> Reach {
        Reach::Absent
    }
}

impl Bus for Systemd {
    fn ask(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, BusError> {
        let mut asked = calls.iter().filter_map(|call| call.list);
        if asked.any(|names| (self.0)(names) == Err(SILENCE)) {
            return Err(BusError::TimedOut);
        }
        let answer = |call: &Call<'_>| {
            let mut body = Writer::default();
            let said = match call.list {
                Some(names) => (self.0)(names).map(|()| list(&mut body, names)),
                None => self.1.map(|count| {
                    body.signature("u").u32(count);
                }),
            };
            match said {
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
fn scrape(says: Says, count: Result<u32, &'static str>) -> (String, Option<String>) {
    scrape_of(says, count, None)
}

/// The same, with so many series at the most.
fn scrape_of(
    says: Says,
    count: Result<u32, &'static str>,
    max_series: Option<u32>,
) -> (String, Option<String>) {
    static TABLE: [Entry; 1] = [Entry::on("guest_units", "", new)];
    let settings = MetricsSettings {
        max_series,
        ..MetricsSettings::default()
    };
    let mut context = Context::new(Roots::default(), settings);
    context.services = Arc::new(Systemd(says, count));
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
fn one_broken_unit_is_said_and_hides_no_other() {
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
        "cannot ask systemd: containerd.service: org.freedesktop.systemd1.LoadFailed"
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
fn what_a_part_leaves_out_is_said() {
    let denied = "org.freedesktop.DBus.Error.AccessDenied";
    // Three units, and kubelet's health twice.
    let (page, reason) = scrape_of(|_| Ok(()), Err(denied), Some(2));
    assert!(reason.is_some());
    assert!(up(&page, "kubelet") && !up(&page, "crio"), "{page}");
    assert!(
        page.contains("virtfleet_agent_series_dropped{collector=\"guest_units\"} 3\n"),
        "{page}"
    );
}

#[test]
fn a_bus_that_is_silent_is_waited_for_once() {
    let (page, reason) = scrape(
        |names| match names {
            ["kubelet.service"] => Ok(()),
            [_] => Err(SILENCE),
            _ => Err("org.freedesktop.systemd1.LoadFailed"),
        },
        Ok(0),
    );
    assert_eq!(
        reason.unwrap(),
        "cannot ask systemd: the system bus did not answer in time"
    );
    assert!(up(&page, "kubelet"), "{page}");
    let (_, reason) = scrape(
        |names| match names {
            ["failed"] => Err(SILENCE),
            _ => Err("org.freedesktop.systemd1.LoadFailed"),
        },
        Ok(1),
    );
    assert_eq!(
        reason.unwrap(),
        "cannot ask systemd: the system bus did not answer in time"
    );
}

#[test]
fn a_refusal_is_a_failure_and_what_is_not_there_is_none() {
    let denied = "org.freedesktop.DBus.Error.AccessDenied";
    let (page, reason) = scrape(|_| Ok(()), Err(denied));
    assert_eq!(
        reason.unwrap(),
        format!("cannot ask systemd: NFailedUnits: {denied}")
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
