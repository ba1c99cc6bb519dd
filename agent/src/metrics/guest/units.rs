//! `guest_units`: failed units of systemd, and whether those are up that make a guest a node: kubelet, containerd, CRI-O.

use std::sync::Arc;

use virtfleet_agent_core::dbus::{Call, Unit, units};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::host::{
    BUS_SOCKET, Reach, Roots, ServiceCalls,
    dbus::{Answer, BusError, KeptBus},
};
use crate::metrics::{CollectError, Collector, Context, RegistryError};

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
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let socket = context.roots.root(BUS_SOCKET);
    Ok(Box::new(Units {
        bus: KeptBus::new(Arc::clone(&context.services), socket),
        services: Arc::clone(&context.services),
        roots: context.roots.clone(),
        has_listened: false,
    }))
}

impl Collector for Units {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        const FAILED: [&str; 2] = [MANAGER, "NFailedUnits"];
        let names = SERVICES.map(|(_, unit, _)| unit);
        let mut list = Call::new(SYSTEMD, MANAGER_PATH, MANAGER, "ListUnitsByNames");
        list.list = Some(&names);
        let count = Call::property(SYSTEMD, MANAGER_PATH, &FAILED);
        let answers = match self.bus.ask(&[list, count]) {
            Ok(answers) => answers,
            // No systemd: nothing to say of units, and what listens still tells.
            Err(BusError::NoBus) => Vec::new(),
            Err(error) => return Err(CollectError::because("cannot ask systemd", error)),
        };
        if let [_, count] = answers.as_slice() {
            self.failed(page, count)?;
        }
        let found = answers
            .first()
            .and_then(|answer| units(answer.reader().ok()?).ok());
        self.up(page, &found.unwrap_or_default());
        Ok(())
    }
}

impl Units {
    fn failed(&mut self, page: &mut Page, count: &Answer) -> Result<(), CollectError> {
        let count = count
            .reader()
            .ok()
            .and_then(|mut reader| reader.variant().ok()?.number().ok());
        // Somebody else than systemd, or one that is older than version 232.
        let Some(count) = count else { return Ok(()) };
        page.gauge(
            "virtfleet_guest_units_failed",
            "Units of systemd that have failed.",
            count as f64,
        );
        if count == 0 {
            return Ok(());
        }
        let mut list = Call::new(SYSTEMD, MANAGER_PATH, MANAGER, "ListUnitsFiltered");
        list.list = Some(&["failed"]);
        let failed = |error| CollectError::because("cannot ask systemd", error);
        let answers = self.bus.ask(&[list]).map_err(failed)?;
        let Some(answer) = answers.first() else {
            return Ok(());
        };
        let mut all = units(answer.reader().map_err(failed)?).map_err(|error| failed(error.into()))?;
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
        Ok(())
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
