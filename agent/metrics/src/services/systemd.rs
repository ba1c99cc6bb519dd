//! `systemd`: units and their states, over the system bus. A scrape has two rounds: the manager and
//! its list of units, then properties of individual units, all at once. Service types rarely change
//! and are queried every five minutes.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use regex_lite::Regex;
use virtfleet_agent_core::dbus::{Call, Unit, units};
use virtfleet_agent_host::{
    BUS_SOCKET,
    dbus::{Answer, BusError, KeptBus, has_no_owner},
};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};
use virtfleet_agent_core::settings::filters;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const SOCKET: &str = "org.freedesktop.systemd1.Socket";
const STATES: [&str; 5] = ["active", "activating", "deactivating", "inactive", "failed"];
/// How long the type of a service is cached.
const TYPE_CACHE_TIME: Duration = Duration::from_mins(5);
/// First version in which the manager reports the system state.
const FIRST_VERSION_WITH_STATE: f64 = 212.0;

struct Systemd {
    bus: KeptBus,
    include: Option<Regex>,
    exclude: Option<Regex>,
    property_queries: Vec<PropertyQuery>,
    /// Cached data of units by name.
    known: HashMap<Box<str>, KnownUnit>,
    scrape: u64,
}

/// Cached data of a unit.
struct KnownUnit {
    taken: bool,
    kind: Box<str>,
    queried: Option<Instant>,
    seen: u64,
}

/// A property that is queried from units with some suffix.
struct PropertyQuery {
    suffix: &'static str,
    names: [&'static str; 2],
    /// Only for active units.
    active: bool,
    family: &'static str,
    help: &'static str,
    kind: MetricType,
    /// Factor from the property's unit to the family's.
    scale: f64,
    /// True if the maximum value means "not set".
    largest_is_none: bool,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.systemd;
    let [include, exclude] = filters::systemd_units(settings)?;
    let socket = context.roots.root(BUS_SOCKET);
    Ok(Box::new(Systemd {
        include,
        exclude,
        bus: KeptBus::new(context.services.clone(), socket),
        property_queries: property_queries(settings.restarts, settings.start_times, settings.tasks),
        known: HashMap::new(),
        scrape: 0,
    }))
}

fn property_queries(restarts: bool, start_times: bool, tasks: bool) -> Vec<PropertyQuery> {
    let want = |suffix, names, family, help, kind| PropertyQuery {
        suffix,
        names,
        active: false,
        family,
        help,
        kind,
        scale: 1.0,
        largest_is_none: false,
    };
    let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
    let mut property_queries = Vec::new();
    if restarts {
        property_queries.push(want(
            ".service",
            [SERVICE, "NRestarts"],
            "node_systemd_service_restart_total",
            "Number of automatic restarts of the service by systemd.",
            counter,
        ));
    }
    if start_times {
        property_queries.push(PropertyQuery {
            active: true,
            scale: 1e-6,
            ..want(
                "",
                ["org.freedesktop.systemd1.Unit", "ActiveEnterTimestamp"],
                "node_systemd_unit_start_time_seconds",
                "Time at which the unit became active, in seconds since 1970; 0 if it is not active.",
                gauge,
            )
        });
    }
    if tasks {
        for (names, family, help) in [
            (
                [SERVICE, "TasksCurrent"],
                "node_systemd_unit_tasks_current",
                "Tasks of the unit.",
            ),
            (
                [SERVICE, "TasksMax"],
                "node_systemd_unit_tasks_max",
                "Maximum number of tasks of the unit.",
            ),
        ] {
            property_queries.push(PropertyQuery {
                largest_is_none: true,
                ..want(".service", names, family, help, gauge)
            });
        }
    }
    property_queries.push(PropertyQuery {
        scale: 1e-6,
        ..want(
            ".timer",
            ["org.freedesktop.systemd1.Timer", "LastTriggerUSec"],
            "node_systemd_timer_last_trigger_seconds",
            "Time at which the timer last elapsed, in seconds since 1970.",
            gauge,
        )
    });
    for (property, family, help, kind) in [
        (
            "NAccepted",
            "node_systemd_socket_accepted_connections_total",
            "Connections that the socket accepted.",
            counter,
        ),
        (
            "NConnections",
            "node_systemd_socket_current_connections",
            "Current connections of the socket.",
            gauge,
        ),
        // Named like a counter but typed as a gauge, as in node_exporter.
        (
            "NRefused",
            "node_systemd_socket_refused_connections_total",
            "Connections that the socket refused.",
            gauge,
        ),
    ] {
        property_queries.push(want(".socket", [SOCKET, property], family, help, kind));
    }
    property_queries
}

impl Collector for Systemd {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        const NAMES: [[&str; 2]; 3] = [
            [MANAGER, "Version"],
            [MANAGER, "Virtualization"],
            [MANAGER, "SystemState"],
        ];
        let mut calls = vec![Call::new(SYSTEMD, MANAGER_PATH, MANAGER, "ListUnits")];
        calls.extend(
            NAMES
                .iter()
                .map(|names| Call::property(SYSTEMD, MANAGER_PATH, names)),
        );
        let answers = query(&mut self.bus, &calls)?;
        let [list, version, virtualization, state] = answers.as_slice() else {
            return Err(CollectError::failed("systemd did not answer"));
        };
        if matches!(list, Answer::Error(name) if has_no_owner(name)) {
            return Err(CollectError::no_data("systemd is not on the system bus"));
        }
        let failed = |error| CollectError::because("cannot query systemd", error);
        let all = units(list.reader().map_err(failed)?).map_err(|error| failed(error.into()))?;
        manager(page, text(version), text(virtualization), text(state))?;
        summary(page, &all);
        let taken = self.taken(&all);
        let queried = self.query_units(&taken)?;
        self.states(page, &taken);
        for (want, values) in self.property_queries.iter().zip(&queried) {
            let mut family = page.family(want.family, want.help, want.kind);
            for (name, value) in values {
                family.sample(&[("name", name)], *value);
            }
        }
        Ok(())
    }
}

fn query(bus: &mut KeptBus, calls: &[Call<'_>]) -> Result<Vec<Answer>, CollectError> {
    bus.call_all(calls).map_err(|error| match error {
        BusError::NoBus => CollectError::no_data("there is no system bus"),
        error => CollectError::because("cannot query systemd", error),
    })
}

/// The text value of a property.
fn text(answer: &Answer) -> Option<&str> {
    answer.reader().ok()?.variant().ok()?.text().ok()
}

fn manager(
    page: &mut Page,
    version: Option<&str>,
    virtualization: Option<&str>,
    state: Option<&str>,
) -> Result<(), CollectError> {
    let number = version.and_then(version_number);
    let mut family = page.family(
        "node_systemd_version",
        "The version of systemd.",
        MetricType::Gauge,
    );
    let label = version.filter(|_| number.is_some()).unwrap_or_default();
    family.sample(&[("version", label)], number.unwrap_or_default());
    let virtualization = match virtualization {
        None => "unknown",
        Some("") => "none",
        Some(kind) => kind,
    };
    let mut family = page.family(
        "node_systemd_virtualization_info",
        "The virtualization detected by systemd, always 1.",
        MetricType::Gauge,
    );
    family.sample(&[("virtualization_type", virtualization)], 1.0);
    if number.is_some_and(|number| number >= FIRST_VERSION_WITH_STATE) {
        let state = state.ok_or_else(|| CollectError::failed("systemd does not report the system state"))?;
        page.gauge(
            "node_systemd_system_running",
            "Whether the system is up and no unit has failed (systemctl is-system-running).",
            f64::from(u8::from(state == "running")),
        );
    }
    Ok(())
}

/// The first number with at least three digits, with its fraction: `257.7` for `257.7-1~deb`.
fn version_number(text: &str) -> Option<f64> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = text;
    loop {
        rest = &rest[rest.find(|letter: char| letter.is_ascii_digit())?..];
        let whole = digits(rest);
        if whole < 3 {
            rest = &rest[whole..];
            continue;
        }
        let fraction = rest[whole..].strip_prefix('.').map_or(0, digits);
        let end = if fraction == 0 {
            whole
        } else {
            whole + 1 + fraction
        };
        return rest[..end].parse().ok();
    }
}

fn summary(page: &mut Page, all: &[Unit<'_>]) {
    let mut counts: BTreeMap<&str, u32> = STATES.iter().map(|state| (*state, 0)).collect();
    for unit in all {
        *counts.entry(unit.active).or_default() += 1;
    }
    let mut family = page.family("node_systemd_units", "Units in each state.", MetricType::Gauge);
    for (state, count) in counts {
        family.sample(&[("state", state)], f64::from(count));
    }
}

impl Systemd {
    fn taken<'a>(&mut self, all: &[Unit<'a>]) -> Vec<Unit<'a>> {
        self.scrape += 1;
        let scrape = self.scrape;
        let mut taken = Vec::new();
        for unit in all {
            if !self.known.contains_key(unit.name) {
                let matches = |regex: &Option<Regex>| regex.as_ref().map(|regex| regex.is_match(unit.name));
                let known = KnownUnit {
                    taken: matches(&self.include).unwrap_or(true) && !matches(&self.exclude).unwrap_or(false),
                    kind: "".into(),
                    queried: None,
                    seen: scrape,
                };
                self.known.insert(unit.name.into(), known);
            }
            let Some(known) = self.known.get_mut(unit.name) else {
                continue;
            };
            known.seen = scrape;
            if known.taken && unit.load == "loaded" {
                taken.push(*unit);
            }
        }
        self.known.retain(|_, known| known.seen == scrape);
        // A repeated name would be a repeated series.
        taken.sort_unstable_by(|a, b| a.name.cmp(b.name));
        taken.dedup_by(|a, b| a.name == b.name);
        taken
    }

    /// Queries the properties of units. The values are in the order of `property_queries`, by name.
    fn query_units<'a>(&mut self, taken: &[Unit<'a>]) -> Result<Vec<Vec<(&'a str, f64)>>, CollectError> {
        const SERVICE_TYPE: [&str; 2] = [SERVICE, "Type"];
        const MOUNT_TYPE: [&str; 2] = ["org.freedesktop.systemd1.Mount", "Type"];
        let mut values: Vec<Vec<(&str, f64)>> = self.property_queries.iter().map(|_| Vec::new()).collect();
        let mut calls = Vec::new();
        // The unit and the property of each call; `None` for the type.
        let mut about: Vec<(&Unit<'a>, Option<usize>)> = Vec::new();
        let now = Instant::now();
        for unit in taken {
            let names = match unit.name.rsplit_once('.') {
                Some((_, "service")) => Some(&SERVICE_TYPE),
                Some((_, "mount")) => Some(&MOUNT_TYPE),
                _ => None,
            };
            let fresh = self.known.get(unit.name).and_then(|known| known.queried);
            let fresh = fresh.is_some_and(|queried| now.saturating_duration_since(queried) < TYPE_CACHE_TIME);
            if let Some(names) = names.filter(|_| !fresh) {
                calls.push(Call::property(SYSTEMD, unit.path, names));
                about.push((unit, None));
            }
            for (index, want) in self.property_queries.iter().enumerate() {
                if !unit.name.ends_with(want.suffix) {
                    continue;
                }
                if want.active && unit.active != "active" {
                    values[index].push((unit.name, 0.0));
                    continue;
                }
                calls.push(Call::property(SYSTEMD, unit.path, &want.names));
                about.push((unit, Some(index)));
            }
        }
        let answers = if calls.is_empty() {
            Vec::new()
        } else {
            query(&mut self.bus, &calls)?
        };
        for ((unit, want), answer) in about.into_iter().zip(&answers) {
            let Some(index) = want else {
                if let (Some(known), Some(kind)) = (self.known.get_mut(unit.name), text(answer)) {
                    known.kind = kind.into();
                    known.queried = Some(now);
                }
                continue;
            };
            let want = &self.property_queries[index];
            let number = answer
                .reader()
                .ok()
                .and_then(|mut reader| reader.variant().ok()?.number().ok());
            // The unit is gone, or this systemd lacks the property.
            if let Some(number) = number.filter(|number| !(want.largest_is_none && *number == u64::MAX)) {
                values[index].push((unit.name, number as f64 * want.scale));
            }
        }
        Ok(values)
    }

    fn states(&self, page: &mut Page, taken: &[Unit<'_>]) {
        let mut family = page.family(
            "node_systemd_unit_state",
            "The state of a unit: 1 for its state, 0 for the others.",
            MetricType::Gauge,
        );
        for unit in taken {
            let kind = self.known.get(unit.name).map_or("", |known| &known.kind);
            // A state that is not known here, such as `reloading`, is shown too.
            let other = (!STATES.contains(&unit.active)).then_some(unit.active);
            for state in STATES.into_iter().chain(other) {
                let labels = [("name", unit.name), ("state", state), ("type", kind)];
                family.sample(&labels, f64::from(u8::from(unit.active == state)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_numbers_are_parsed() {
        for (text, number) in [
            ("257.7-1~deb13u1", Some(257.7)),
            ("252", Some(252.0)),
            ("v12 249.11-0ubuntu3", Some(249.11)),
            ("255~rc1", Some(255.0)),
            ("25", None),
            ("", None),
        ] {
            assert_eq!(version_number(text), number, "{text}");
        }
    }
}
