//! What the kernel of these tests answers to `ServiceCalls`.

use std::path::Path;

use virtfleet_agent_core::dbus::{Call, Writer, unit_path};
use virtfleet_agent_host::{
    ServiceCalls, SocketState,
    dbus::{Answer, Bus, BusError},
};

use crate::exposition::world::FakeKernel;

/// A kernel of roots without a systemd has no bus: the one with the path of the fixture `kubevirt`
/// or a copy of it has one.
impl ServiceCalls for FakeKernel {
    fn bus(&self, path: &Path) -> Result<Box<dyn Bus>, BusError> {
        let rootfs = path.ancestors().nth(3).ok_or(BusError::NoBus)?;
        if rootfs.join("run/systemd/timesync").exists() {
            Ok(Box::new(FakeBus))
        } else {
            Err(BusError::NoBus)
        }
    }
    fn healthz(&self, port: u16) -> Option<u16> {
        (port == 10_248).then_some(200)
    }
    fn reach(&self, socket: &Path) -> SocketState {
        if socket.ends_with("run/containerd/containerd.sock") {
            SocketState::Denied
        } else {
            SocketState::Absent
        }
    }
}

/// Name, load state, state.
const UNITS: [(&str, &str, &str); 9] = [
    ("kubelet.service", "loaded", "active"),
    ("containerd.service", "loaded", "active"),
    ("getty@tty1.service", "loaded", "inactive"),
    ("broken.service", "loaded", "failed"),
    ("gone.service", "not-found", "inactive"),
    ("apt-daily.timer", "loaded", "active"),
    ("dbus.socket", "loaded", "active"),
    ("-.mount", "loaded", "active"),
    ("multi-user.target", "loaded", "active"),
];

struct FakeBus;

impl Bus for FakeBus {
    fn call_all(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, BusError> {
        Ok(calls.iter().map(answer).collect())
    }
}

fn answer(call: &Call<'_>) -> Answer {
    let mut body = Writer::default();
    match (call.member, call.texts) {
        ("ListUnits", _) => list(&mut body, &UNITS),
        ("ListUnitsByNames", _) => {
            let names = call.list.unwrap_or_default();
            let found: Vec<_> = names
                .iter()
                .map(|name| {
                    let known = UNITS.iter().find(|(known, ..)| known == name);
                    known.copied().unwrap_or((name, "not-found", "inactive"))
                })
                .collect();
            list(&mut body, &found);
        }
        ("ListUnitsFiltered", _) => {
            let found: Vec<_> = UNITS
                .iter()
                .filter(|(.., state)| *state == "failed")
                .copied()
                .collect();
            list(&mut body, &found);
        }
        ("ListSeats", _) => {
            body.array(8, |seats| {
                seats.align(8).string("seat0").string("/seat");
            });
        }
        ("ListSessions", _) => {
            body.array(8, |sessions| {
                for (id, seat) in [("1", "seat0"), ("2", "")] {
                    sessions
                        .align(8)
                        .string(id)
                        .u32(1000)
                        .string("admin")
                        .string(seat)
                        .string("/session");
                }
            });
        }
        ("Get", [_, property]) => match (*property, call.path) {
            ("Version", _) => text(&mut body, "257.7-1"),
            ("Virtualization", _) => text(&mut body, "kvm"),
            ("SystemState", _) => text(&mut body, "degraded"),
            ("NFailedUnits", _) => number(&mut body, 1),
            ("Type", path) if path == unit_path("getty@tty1.service") => text(&mut body, "idle"),
            ("Type", "/session") => text(&mut body, "tty"),
            ("Class", "/session") => text(&mut body, "user-early"),
            ("Remote", _) => drop(body.signature("b").boolean(false)),
            ("Type", _) => text(&mut body, "notify"),
            ("LastTriggerUSec", _) => drop(body.signature("t").u64(1_751_328_000_500_000)),
            ("NAccepted", _) => number(&mut body, 7),
            ("NConnections" | "NRefused", _) => number(&mut body, 0),
            _ => return Answer::Error("org.freedesktop.DBus.Error.UnknownProperty".into()),
        },
        _ => return Answer::Error("org.freedesktop.DBus.Error.UnknownMethod".into()),
    }
    Answer::Body {
        bytes: body.into_bytes(),
        big: false,
    }
}

fn text(body: &mut Writer, value: &str) {
    body.signature("s").string(value);
}

fn number(body: &mut Writer, value: u32) {
    body.signature("u").u32(value);
}

fn list(body: &mut Writer, units: &[(&str, &str, &str)]) {
    body.array(8, |rows| {
        for (name, load, state) in units {
            rows.align(8)
                .string(name)
                .string("A unit")
                .string(load)
                .string(state)
                .string("sub");
            rows.string("")
                .string(&unit_path(name))
                .u32(0)
                .string("")
                .string("/");
        }
    });
}
