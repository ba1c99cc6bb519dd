//! Test machines, and a model of the kernel that applies steps to them.

use virtfleet_wire::settings::{Multiqueue, NicSettings};

use super::{NicStep, Plan, plan};
use crate::{
    nic::{Asked, carry::update_states, check, spread::spread, state::NicState},
    virtio::{Channels, Cpus, Direction, Disk, Machine, Nic, NicQueue, Rings},
};

/// Checked settings for `nic.multiqueue`.
pub(super) fn asked(multiqueue: Multiqueue) -> Asked {
    with(&NicSettings {
        multiqueue,
        ..NicSettings::default()
    })
}

pub(super) fn with(settings: &NicSettings) -> Asked {
    check(settings, &virtfleet_wire::settings::VirtioSettings::default()).unwrap()
}

pub(super) fn machine(cpus: u32, nics: Vec<Nic>) -> Machine {
    Machine {
        cpus: Cpus {
            online: (0..cpus).collect(),
            ..Cpus::default()
        },
        nics,
        ..Machine::default()
    }
}

/// Virtio interface as the kernel sets it up, with `current` of `possible` queues, for `cpus` CPUs.
pub(super) fn nic(number: u32, current: u32, possible: u32, cpus: u32) -> Nic {
    let mut nic = Nic {
        name: format!("eth{number}"),
        index: number + 2,
        mac: format!("02:00:00:00:00:{number:02x}"),
        driver: "virtio_net".to_owned(),
        up: true,
        carrier: Some(true),
        channels: Some(Channels { current, possible }),
        rings: Some(Rings {
            rx: 256,
            tx: 256,
            rx_possible: 1024,
            tx_possible: 1024,
        }),
        ..Nic::default()
    };
    set_channels(&mut nic, current, &(0..cpus).collect::<Vec<u32>>());
    nic
}

/// Changes the number of queues like the driver: it sets XPS again (none for an interface limited
/// to one queue) and keeps the RPS of the remaining queues.
fn set_channels(nic: &mut Nic, to: u32, online: &[u32]) {
    let Some(channels) = &mut nic.channels else {
        return;
    };
    channels.current = to;
    let single = channels.possible == 1;
    let old = std::mem::take(&mut nic.queues);
    let rps = |queue| {
        let kept = old
            .iter()
            .find(|one| one.direction == Direction::Receive && one.index == queue);
        kept.map_or(Some(Vec::new()), |one| one.cpus.clone())
    };
    let receive = (0..to).map(|index| NicQueue {
        direction: Direction::Receive,
        index,
        cpus: rps(index),
        ..NicQueue::default()
    });
    let maps = spread(online, to);
    let transmit = (0u32..).zip(maps).map(|(index, cpus)| NicQueue {
        direction: Direction::Transmit,
        index,
        cpus: (!single).then_some(cpus),
        ..NicQueue::default()
    });
    nic.queues = receive.chain(transmit).collect();
}

/// Applies a step like the kernel.
pub(super) fn apply_to(machine: &mut Machine, step: &NicStep) {
    let online = machine.cpus.online.clone();
    let nic = machine
        .nics
        .iter_mut()
        .find(|nic| step.target().is_some_and(|target| target.nic == nic.name));
    match (step, nic) {
        (NicStep::SetChannels { from, to, .. }, Some(nic)) => {
            let channels = nic.channels.unwrap();
            assert_eq!(channels.current, *from);
            assert!((1..=channels.possible).contains(to), "{step}");
            set_channels(nic, *to, &online);
        }
        (
            NicStep::SetSteering {
                direction, queue, to, ..
            },
            Some(nic),
        ) => {
            let mut queues = nic.queues.iter_mut();
            let found = queues.find(|one| one.direction == *direction && one.index == *queue);
            found.expect("a queue that is there").cpus = Some(to.clone());
        }
        (NicStep::SetRings { to, .. }, Some(nic)) => {
            let rings = nic.rings.as_mut().unwrap();
            assert!(to.rx <= rings.rx_possible && to.tx <= rings.tx_possible, "{step}");
            (rings.rx, rings.tx) = (to.rx, to.tx);
        }
        (NicStep::SetScheduler { disk, to, .. }, None) => {
            let disk: &mut Disk = machine.disks.iter_mut().find(|one| one.name == *disk).unwrap();
            assert!(disk.schedulers.contains(to), "{step}");
            disk.scheduler = Some(to.clone());
        }
        other => panic!("unexpected step: {other:?}"),
    }
}

/// Runs like a manual run: at most twice, since XPS is checked only when the number of queues is
/// right.
pub(super) fn pass(asked: &Asked, machine: &mut Machine, state: &mut NicState) -> Plan {
    for _ in 0..2 {
        let now = plan(asked, machine, state);
        state.nics = update_states(state, &now);
        for step in &now.steps {
            if let NicStep::SetChannels { target, from, to } = step {
                state.nics.get_mut(&target.nic).unwrap().set(*from, *to);
            }
            apply_to(machine, step);
        }
    }
    let after = plan(asked, machine, state);
    state.nics = update_states(state, &after);
    after
}
