//! `guest_units`: failed units of systemd, and whether those are up that make a guest a node: kubelet, containerd, CRI-O.

use std::sync::Arc;

use virtfleet_agent_core::dbus::{Call, Reader, Unit, WireError, units};
use virtfleet_agent_host::{
    BUS_SOCKET, Reach, Roots, ServiceCalls,
    dbus::{Answer, BusError, KeptBus, is_away},
};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// Failed units that are named at the most.
const MOST: usize = 64;
/// Where kubelet says whether it is well (`healthzPort`).
const KUBELET_PORT: u16 = 10_248;
/// What makes a guest a node: service, unit, socket.
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
    /// Whether kubelet's health endpoint has ever been there: it may be elsewhere, or off.
    has_listened: bool,
    /// Whether the bus itself failed in this scrape: whoever waits for it once more may wait past the deadline.
    is_broken: bool,
    /// What this scrape could not ask, and why.
    troubles: Vec<String>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let socket = context.roots.root(BUS_SOCKET);
    Ok(Box::new(Units {
        bus: KeptBus::new(Arc::clone(&context.services), socket),
        services: Arc::clone(&context.services),
        roots: context.roots.clone(),
        has_listened: false,
        is_broken: false,
        troubles: Vec::new(),
    }))
}

impl Collector for Units {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        const FAILED: [&str; 2] = [MANAGER, "NFailedUnits"];
        self.troubles.clear();
        self.is_broken = false;
        let names = SERVICES.map(|(_, unit, _)| unit);
        let answers = self.ask(&[by_names(&names), Call::property(SYSTEMD, MANAGER_PATH, &FAILED)]);
        let mut lists = Vec::new();
        if let [list, count] = answers.as_slice() {
            self.failed(page, count);
            match list {
                // systemd gives no list at all when it cannot load one of the units: each is asked for by itself.
                Answer::Error(name) if !is_none(name) => {
                    for name in &names {
                        let answers = self.ask(&[by_names(std::slice::from_ref(name))]);
                        lists.extend(answers.into_iter().map(|answer| (*name, answer)));
                    }
                }
                list => lists.push(("units", list.clone())),
            }
        }
        let mut found = Vec::new();
        for (name, list) in &lists {
            found.extend(self.told(name, list, units));
        }
        self.up(page, &found.concat());
        if self.troubles.is_empty() {
            return Ok(());
        }
        Err(CollectError::Partly(format!(
            "cannot ask systemd: {}",
            self.troubles.join("; ")
        )))
    }
}

/// A call for these units, loaded or not.
fn by_names<'a>(names: &'a [&'a str]) -> Call<'a> {
    let mut call = Call::new(SYSTEMD, MANAGER_PATH, MANAGER, "ListUnitsByNames");
    call.list = Some(names);
    call
}

/// Whether an error says that there is no such thing: no systemd, an older one, no such unit. That is no fault.
fn is_none(error: &str) -> bool {
    let unknown = error.strip_prefix("org.freedesktop.DBus.Error.Unknown");
    let spawned = error.starts_with("org.freedesktop.DBus.Error.Spawn.");
    is_away(error)
        || matches!(unknown, Some("Method" | "Property" | "Interface" | "Object"))
        // The bus cannot start systemd where it is not the init.
        || spawned
        || error == "org.freedesktop.systemd1.NoSuchUnit"
}

impl Units {
    /// Asks systemd; nothing where it cannot be asked, which is a trouble unless there is no bus, or once the bus has failed.
    fn ask(&mut self, calls: &[Call<'_>]) -> Vec<Answer> {
        if self.is_broken {
            return Vec::new();
        }
        match self.bus.ask(calls) {
            Ok(answers) => answers,
            // No systemd: nothing to say of units, and what listens still tells.
            Err(BusError::NoBus) => Vec::new(),
            Err(error) => {
                self.is_broken = true;
                self.troubles.push(error.to_string());
                Vec::new()
            }
        }
    }

    /// What an answer about `what` says; none where there is nothing to say, or a trouble.
    fn told<'a, T>(
        &mut self,
        what: &str,
        answer: &'a Answer,
        read: impl FnOnce(Reader<'a>) -> Result<T, WireError>,
    ) -> Option<T> {
        let told = match answer {
            Answer::Error(name) if is_none(name) => return None,
            answer => answer.reader().and_then(|reader| Ok(read(reader)?)),
        };
        told.map_err(|error| self.troubles.push(format!("{what}: {error}")))
            .ok()
    }

    fn failed(&mut self, page: &mut Page, count: &Answer) {
        let count = self.told("NFailedUnits", count, |mut reader| reader.variant()?.number());
        let Some(count) = count else { return };
        page.gauge(
            "virtfleet_guest_units_failed",
            "Units of systemd that have failed.",
            count as f64,
        );
        if count == 0 {
            return;
        }
        let mut list = Call::new(SYSTEMD, MANAGER_PATH, MANAGER, "ListUnitsFiltered");
        list.list = Some(&["failed"]);
        let answers = self.ask(&[list]);
        let Some(answer) = answers.first() else { return };
        let Some(mut all) = self.told("failed units", answer, units) else {
            return;
        };
        all.sort_unstable_by(|a, b| a.name.cmp(b.name));
        all.dedup_by(|a, b| a.name == b.name);
        let mut family = page.family(
            "virtfleet_guest_unit_failed",
            "A unit of systemd that has failed, always 1.",
            MetricType::Gauge,
        );
        for unit in all.iter().take(MOST) {
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
                    Reach::Listens => rows.push((service, "socket", true)),
                    Reach::Silent => rows.push((service, "socket", false)),
                    // Only root may ask: its unit must do.
                    Reach::Absent | Reach::Denied => {}
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
            "Whether a service that nodes live by is up, as its unit, its socket or its health endpoint tells.",
            MetricType::Gauge,
        );
        for (service, by, is_up) in rows {
            family.sample(&[("service", service), ("by", by)], f64::from(u8::from(is_up)));
        }
        if let Some(status) = status {
            page.gauge(
                "virtfleet_guest_kubelet_healthz_status",
                "The HTTP status that kubelet's health endpoint answered with; 0 when it gave none in time.",
                f64::from(status),
            );
        }
    }
}

#[cfg(test)]
#[path = "units_tests.rs"]
mod tests;
