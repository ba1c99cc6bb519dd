//! Devices: one line each, their features, and their queues with interrupts.

use std::collections::BTreeMap;

use anstyle::AnsiColor;
use virtfleet_agent_core::virtio::{Bus, Device, Features, Machine, Queue, Role, Sharing, Vector, ranges};
use virtfleet_agent_service::report::device_state;

use super::{
    super::rows::{Cell, rows, tree},
    detail::{Detail, number},
};

pub(super) fn text(machine: &Machine, detail: Detail) -> String {
    let heads: Vec<Vec<Cell>> = machine.devices.iter().map(head).collect();
    let devices = machine.devices.iter();
    let below = devices.map(|device| features(device, detail) + &queues(device, detail));
    tree(&heads, below)
}

fn head(device: &Device) -> Vec<Cell> {
    let bus = match device.bus {
        Bus::Pci => "pci",
        Bus::Mmio => "mmio",
        Bus::Ccw => "ccw",
        Bus::Other => "",
    };
    let state = device_state(device);
    let colour = match state {
        "ok" => AnsiColor::Green,
        "unknown" | "no-driver" => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    let parts = device.parts.join(" ");
    vec![
        device.name.as_str().into(),
        device.kind.to_string().into(),
        device.driver.as_deref().unwrap_or("-").into(),
        format!("{bus} {}", device.address).trim().into(),
        Cell::coloured(state, colour),
        parts.into(),
    ]
}

/// The negotiated features, and those that were offered and not accepted.
fn features(device: &Device, detail: Detail) -> String {
    if detail.sums || device.negotiated == Features::default() {
        return String::new();
    }
    let names = |features: Features| features.names(device.kind).join(" ");
    let mut lines = vec![vec!["features".into(), names(device.negotiated).into()]];
    if let Some(offered) = device.offered {
        let left = Features(offered.0 & !device.negotiated.0);
        if left != Features::default() {
            lines.push(vec!["not accepted".into(), names(left).into()]);
        }
    }
    rows(4, &lines)
}

fn queues(device: &Device, detail: Detail) -> String {
    if device.queues.is_empty() && device.vectors.is_empty() {
        return String::new();
    }
    if !detail.each(device.queues.len()) {
        return sum(device);
    }
    let head = ["QUEUE", "IRQ", "CPUS", "INTERRUPTS", "LANDED ON"]
        .map(Cell::from)
        .to_vec();
    let lines = device.queues.iter().map(|queue| row(device, queue));
    let table = rows(4, &std::iter::once(head).chain(lines).collect::<Vec<_>>());
    match shared(device.sharing) {
        Some(note) => table + &rows(4, &[vec![note.into()]]),
        None => table,
    }
}

fn shared(sharing: Sharing) -> Option<&'static str> {
    match sharing {
        Sharing::Shared => Some("one interrupt for all queues"),
        Sharing::Intx => Some("one interrupt line for everything"),
        Sharing::Own | Sharing::Unknown => None,
    }
}

fn row(device: &Device, queue: &Queue) -> Vec<Cell> {
    let vector = queue.irq.and_then(|irq| device.vector(irq));
    vec![
        format!("{}.{}", role(&queue.role), queue.index).into(),
        number(queue.irq.map(u64::from)),
        vector.map_or_else(|| "-".into(), |vector| ranges(serving(vector)).into()),
        number(vector.map(Vector::count)),
        vector.map_or_else(Cell::default, |vector| {
            let mut cpus: Vec<u32> = vector.landed.iter().map(|one| one.0).collect();
            cpus.sort_unstable();
            if cpus.is_empty() {
                "-".into()
            } else {
                ranges(&cpus).into()
            }
        }),
    ]
}

/// The CPUs that the vector is routed to, or may be routed to if that is unknown.
fn serving(vector: &Vector) -> &[u32] {
    if vector.effective.is_empty() {
        &vector.affinity
    } else {
        &vector.effective
    }
}

fn role(role: &Role) -> &str {
    match role {
        Role::Input => "input",
        Role::Output => "output",
        Role::Request => "request",
        Role::Control => "control",
        Role::Event => "event",
        Role::Other(name) => name,
        Role::Unknown => "queue",
    }
}

/// `64 queues (32 input, 32 output), 66 interrupts, which occurred 1234 times`.
fn sum(device: &Device) -> String {
    let mut roles: BTreeMap<&str, usize> = BTreeMap::new();
    for queue in &device.queues {
        *roles.entry(role(&queue.role)).or_default() += 1;
    }
    let roles: Vec<String> = roles
        .iter()
        .map(|(role, count)| format!("{count} {role}"))
        .collect();
    let vectors = device.vectors.iter();
    let came = vectors.fold(0u64, |sum, one| sum.saturating_add(one.count()));
    let queues = match device.queues.len() {
        0 => "queues are unknown".to_owned(),
        count => format!("{count} queues ({})", roles.join(", ")),
    };
    let note = shared(device.sharing).map_or_else(String::new, |note| format!("; {note}"));
    let vectors = device.vectors.len();
    let line = format!("{queues}, {vectors} interrupts, which occurred {came} times{note}");
    rows(4, &[vec![line.into()]])
}
