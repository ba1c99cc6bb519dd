//! `logind`: number of sessions by seat, type and class.

use std::collections::BTreeMap;

use virtfleet_agent_core::dbus::{Call, Reader, WireError};
use virtfleet_agent_host::{
    BUS_SOCKET,
    dbus::{Answer, BusError, KeptBus, has_no_owner},
};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

const LOGIND: &str = "org.freedesktop.login1";
const SESSION: &str = "org.freedesktop.login1.Session";
/// Types that node_exporter distinguishes; others are `other`.
const TYPES: [&str; 7] = ["other", "unspecified", "tty", "x11", "wayland", "mir", "web"];
const CLASSES: [&str; 5] = ["other", "user", "greeter", "lock-screen", "background"];
/// Maximum number of sessions that are queried.
const MAX_SESSIONS: usize = 4096;

struct Logind {
    bus: KeptBus,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let socket = context.roots.root(BUS_SOCKET);
    Ok(Box::new(Logind {
        bus: KeptBus::new(context.services.clone(), socket),
    }))
}

impl Collector for Logind {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let manager = |member| {
            Call::new(
                LOGIND,
                "/org/freedesktop/login1",
                "org.freedesktop.login1.Manager",
                member,
            )
        };
        let answers = query(&mut self.bus, &[manager("ListSeats"), manager("ListSessions")])?;
        let [seats, sessions] = answers.as_slice() else {
            return Err(CollectError::failed("logind did not answer"));
        };
        let mut seats = read(seats, seats_of)?;
        // Remote sessions have no seat.
        seats.push("");
        let mut sessions = read(sessions, sessions_of)?;
        sessions.truncate(MAX_SESSIONS);
        let counts = self.count(&sessions)?;
        let mut family = page.family("node_logind_sessions", "Sessions in logind.", MetricType::Gauge);
        for remote in ["true", "false"] {
            for kind in TYPES {
                for class in CLASSES {
                    for seat in &seats {
                        let count = counts.get(&(*seat, remote, kind, class)).copied();
                        let labels = [
                            ("seat", *seat),
                            ("remote", remote),
                            ("type", kind),
                            ("class", class),
                        ];
                        family.sample(&labels, f64::from(count.unwrap_or(0)));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Number of sessions by seat, remote, type and class.
type Counts<'a> = BTreeMap<(&'a str, &'static str, &'static str, &'static str), u32>;

impl Logind {
    fn count<'a>(&mut self, sessions: &[(&'a str, &str)]) -> Result<Counts<'a>, CollectError> {
        const NAMES: [[&str; 2]; 3] = [[SESSION, "Remote"], [SESSION, "Type"], [SESSION, "Class"]];
        let calls: Vec<_> = sessions
            .iter()
            .flat_map(|(_, path)| NAMES.iter().map(|names| Call::property(LOGIND, path, names)))
            .collect();
        let answers = if calls.is_empty() {
            Vec::new()
        } else {
            query(&mut self.bus, &calls)?
        };
        let mut counts = Counts::new();
        for ((seat, _), answers) in sessions.iter().zip(answers.chunks(NAMES.len())) {
            let [remote, kind, class] = answers else { continue };
            // The session ended meanwhile.
            let (Some(remote), Some(kind), Some(class)) = (
                variant(remote).and_then(|value| value.boolean().ok()),
                variant(kind).and_then(|value| value.text().ok()),
                variant(class).and_then(|value| value.text().ok()),
            ) else {
                continue;
            };
            let remote = if remote { "true" } else { "false" };
            let key = (*seat, remote, known(kind, &TYPES), known(class, &CLASSES));
            *counts.entry(key).or_default() += 1;
        }
        Ok(counts)
    }
}

fn query(bus: &mut KeptBus, calls: &[Call<'_>]) -> Result<Vec<Answer>, CollectError> {
    bus.call_all(calls).map_err(|error| match error {
        BusError::NoBus => CollectError::no_data("there is no system bus"),
        error => CollectError::because("cannot query logind", error),
    })
}

fn variant(answer: &Answer) -> Option<virtfleet_agent_core::dbus::Value<'_>> {
    answer.reader().ok()?.variant().ok()
}

fn known(word: &str, words: &[&'static str]) -> &'static str {
    words
        .iter()
        .find(|known| **known == word)
        .copied()
        .unwrap_or("other")
}

fn read<'a, T>(
    answer: &'a Answer,
    rows: impl Fn(Reader<'a>) -> Result<Vec<T>, WireError>,
) -> Result<Vec<T>, CollectError> {
    if matches!(answer, Answer::Error(name) if has_no_owner(name)) {
        return Err(CollectError::no_data("logind does not run"));
    }
    let failed = |error| CollectError::because("cannot query logind", error);
    let reader = answer.reader().map_err(failed)?;
    rows(reader).map_err(|error| failed(error.into()))
}

/// `a(so)`: names of the seats.
fn seats_of(mut body: Reader<'_>) -> Result<Vec<&str>, WireError> {
    let mut rows = body.array(8)?;
    let mut seats = Vec::new();
    while !rows.is_at_end() {
        rows.align(8)?;
        let seat = rows.string()?;
        rows.string()?;
        if seats.len() < MAX_SESSIONS && !seats.contains(&seat) && !seat.is_empty() {
            seats.push(seat);
        }
    }
    Ok(seats)
}

/// `a(susso)`: seat and object path of each session.
fn sessions_of(mut body: Reader<'_>) -> Result<Vec<(&str, &str)>, WireError> {
    let mut rows = body.array(8)?;
    let mut sessions = Vec::new();
    while !rows.is_at_end() {
        rows.align(8)?;
        rows.string()?;
        rows.u32()?;
        rows.string()?;
        let seat = rows.string()?;
        sessions.push((seat, rows.string()?));
    }
    Ok(sessions)
}
