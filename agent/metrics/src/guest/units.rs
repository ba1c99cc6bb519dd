//! `guest_units`: failed systemd units, and whether the services of a node are up: kubelet,
//! containerd, CRI-O.

use std::sync::Arc;

use virtfleet_agent_core::dbus::{Call, Reader, Unit, WireError, units};
use virtfleet_agent_host::{
    BUS_SOCKET, Roots, ServiceCalls, SocketState,
    dbus::{Answer, BusError, KeptBus, has_no_owner},
};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// Maximum number of failed units that are listed.
const MAX_FAILED_UNITS: usize = 64;
/// kubelet's health endpoint (`healthzPort`).
const KUBELET_PORT: u16 = 10_248;
/// Services of a node: service, unit, socket.
const SERVICES: [(&str, &str, Option<&str>); 3] = [
    ("kubelet", "kubelet.service", None),
    (
        "containerd",
        "containerd.service",
        Some("/run/containerd/containerd.sock"),
    ),
    ("crio", "crio.service", Some("/run/crio/crio.sock")),
];

struct Units {
    bus: KeptBus,
    services: Arc<dyn ServiceCalls>,
    roots: Roots,
    /// Whether kubelet's health endpoint has ever been found: it may be at another port, or
    /// disabled.
    has_listened: bool,
    /// Whether the bus failed in this scrape. Another attempt could exceed the deadline.
    is_broken: bool,
    failures: Vec<String>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let socket = context.roots.root(BUS_SOCKET);
    Ok(Box::new(Units {
        bus: KeptBus::new(Arc::clone(&context.services), socket),
        services: Arc::clone(&context.services),
        roots: context.roots.clone(),
        has_listened: false,
        is_broken: false,
        failures: Vec::new(),
    }))
}

impl Collector for Units {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        const FAILED: [&str; 2] = [MANAGER, "NFailedUnits"];
        self.failures.clear();
        self.is_broken = false;
        let names = SERVICES.map(|(_, unit, _)| unit);
        let answers = self.query(&[by_names(&names), Call::property(SYSTEMD, MANAGER_PATH, &FAILED)]);
        let mut lists = Vec::new();
        if let [list, count] = answers.as_slice() {
            self.failed(page, count);
            match list {
                // systemd returns no list if it cannot load one of the units; then each is queried
                // separately.
                Answer::Error(name) if !is_absence(name) => {
                    for name in &names {
                        let answers = self.query(&[by_names(std::slice::from_ref(name))]);
                        lists.extend(answers.into_iter().map(|answer| (*name, answer)));
                    }
                }
                list => lists.push(("units", list.clone())),
            }
        }
        let mut found = Vec::new();
        for (name, list) in &lists {
            found.extend(self.value_of(name, list, units));
        }
        self.up(page, &found.concat());
        if self.failures.is_empty() {
            return Ok(());
        }
        Err(CollectError::Partly(format!(
            "cannot query systemd: {}",
            self.failures.join("; ")
        )))
    }
}

/// A query for these units, loaded or not.
fn by_names<'a>(names: &'a [&'a str]) -> Call<'a> {
    let mut call = Call::new(SYSTEMD, MANAGER_PATH, MANAGER, "ListUnitsByNames");
    call.list = Some(names);
    call
}

/// True for an error that means absence, which is not a fault: no systemd, an older systemd, no
/// such unit.
fn is_absence(error: &str) -> bool {
    let unknown = error.strip_prefix("org.freedesktop.DBus.Error.Unknown");
    let spawned = error.starts_with("org.freedesktop.DBus.Error.Spawn.");
    has_no_owner(error)
        || matches!(unknown, Some("Method" | "Property" | "Interface" | "Object"))
        // The bus cannot start systemd if it is not the init process.
        || spawned
        || error == "org.freedesktop.systemd1.NoSuchUnit"
}

impl Units {
    /// Queries systemd. Returns nothing if that is impossible, which counts as a failure unless
    /// there is no bus or the bus has already failed.
    fn query(&mut self, calls: &[Call<'_>]) -> Vec<Answer> {
        if self.is_broken {
            return Vec::new();
        }
        match self.bus.call_all(calls) {
            Ok(answers) => answers,
            // No systemd: units have no state, but sockets and ports are still checked.
            Err(BusError::NoBus) => Vec::new(),
            Err(error) => {
                self.is_broken = true;
                self.failures.push(error.to_string());
                Vec::new()
            }
        }
    }

    /// The value of an answer about `what`. `None` if there is no value; a failure is recorded.
    fn value_of<'a, T>(
        &mut self,
        what: &str,
        answer: &'a Answer,
        read: impl FnOnce(Reader<'a>) -> Result<T, WireError>,
    ) -> Option<T> {
        let value_of = match answer {
            Answer::Error(name) if is_absence(name) => return None,
            answer => answer.reader().and_then(|reader| Ok(read(reader)?)),
        };
        value_of
            .map_err(|error| self.failures.push(format!("{what}: {error}")))
            .ok()
    }

    fn failed(&mut self, page: &mut Page, count: &Answer) {
        let count = self.value_of("NFailedUnits", count, |mut reader| reader.variant()?.number());
        let Some(count) = count else { return };
        page.gauge(
            "virtfleet_guest_units_failed",
            "Number of failed systemd units.",
            count as f64,
        );
        if count == 0 {
            return;
        }
        let mut list = Call::new(SYSTEMD, MANAGER_PATH, MANAGER, "ListUnitsFiltered");
        list.list = Some(&["failed"]);
        let answers = self.query(&[list]);
        let Some(answer) = answers.first() else { return };
        let Some(mut all) = self.value_of("failed units", answer, units) else {
            return;
        };
        all.sort_unstable_by(|a, b| a.name.cmp(b.name));
        all.dedup_by(|a, b| a.name == b.name);
        let mut family = page.family(
            "virtfleet_guest_unit_failed",
            "A failed systemd unit, always 1.",
            MetricType::Gauge,
        );
        for unit in all.iter().take(MAX_FAILED_UNITS) {
            family.sample(&[("name", unit.name)], 1.0);
        }
    }

    fn up(&mut self, page: &mut Page, found: &[Unit<'_>]) {
        let mut rows: Vec<(&str, &str, bool)> = Vec::new();
        let mut status = None;
        for (service, unit, socket) in SERVICES {
            let unit = found
                .iter()
                .find(|found| found.name == unit && found.load == "loaded");
            rows.extend(unit.map(|unit| (service, "unit", unit.active == "active")));
            if let Some(socket) = socket {
                match self.services.reach(&self.roots.root(socket)) {
                    SocketState::Listens => rows.push((service, "socket", true)),
                    SocketState::Silent => rows.push((service, "socket", false)),
                    // Only root can connect; the state of the unit is sufficient.
                    SocketState::Absent | SocketState::Denied => {}
                }
            } else {
                status = self.services.healthz(KUBELET_PORT);
                self.has_listened |= status.is_some();
                if self.has_listened {
                    rows.push((service, "healthz", status == Some(200)));
                }
            }
        }
        let mut family = page.family(
            "virtfleet_guest_service_up",
            "Whether a service that a node depends on is up, according to its unit, socket or health endpoint.",
            MetricType::Gauge,
        );
        for (service, by, is_up) in rows {
            family.sample(&[("service", service), ("by", by)], f64::from(u8::from(is_up)));
        }
        if let Some(status) = status {
            page.gauge(
                "virtfleet_guest_kubelet_healthz_status",
                "HTTP status of kubelet's health endpoint; 0 if it did not answer in time.",
                f64::from(status),
            );
        }
    }
}

#[cfg(test)]
#[path = "units_tests.rs"]
mod tests;
