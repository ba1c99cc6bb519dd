//! A fake machine: its driver, links and clock.

use std::{
    collections::BTreeMap,
    fs, io,
    net::IpAddr,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use virtfleet_agent_core::{
    nic::{Plan, spread::spread, state::NicState},
    pass::Stage,
    virtio::{Channels, Coalescing, Counters, Cpus, Direction, Machine, Nic, NicQueue, Rings},
};
use virtfleet_agent_host::Errno;
use virtfleet_agent_host::{Link, NicCalls, NoFailPoints, QueueCounters, Roots, Traffic};
use virtfleet_agent_state::settings;

use super::super::{NicMode, NicProvisioner, Wanted, World, wanted};
use crate::engine::{Mode, RunResult};

pub(super) const BOOT: &str = "b";

/// A fault of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The driver returns this error, this many times.
    Answers(Errno, u32),
    /// No carrier with this number of queues.
    NoCarrier(u32),
    /// No carrier after the number was changed.
    NoCarrierEver,
    /// With this number of queues the carrier is lost after this time.
    Dies(u32, Duration),
    /// No carrier with this number of queues, and no other number can be set.
    Sticks(u32),
    /// Down until the number is set.
    ComesUp,
    /// No traffic with this number of queues.
    NoPackets(u32),
    /// Traffic stops after the number was set, for another reason.
    Ends,
    /// With this number of queues nothing is received; sending works.
    NoReceive(u32),
    /// The address is gone with this number of queues.
    NoAddress(u32),
    /// The interface disappears when the number is set.
    Goes,
    /// Another interface has its name when the number is set.
    IsReplaced,
    /// The driver reports success and changes nothing.
    Pretends,
    /// After the number was set, one CPU sends by all queues.
    Uneven,
    /// The kernel returns this error when CPUs are set.
    NoSteering(Errno),
    /// The kernel reports success and keeps the CPUs of before.
    PretendsSteering,
}

pub(super) struct Inner {
    pub(super) machine: Machine,
    pub(super) faults: BTreeMap<String, Fault>,
    /// Changes, in order.
    pub(super) set: Vec<String>,
    /// Packets per second, by interface.
    pub(super) rates: BTreeMap<String, u64>,
    pub(super) touched: bool,
    set_at: Duration,
    clock: Duration,
    /// Received and sent packets.
    packets: BTreeMap<String, (u64, u64)>,
}

pub(super) struct Guest {
    dir: tempfile::TempDir,
    pub(super) roots: Roots,
    inner: Mutex<Inner>,
}

/// A run that a stage starts.
pub(super) fn by_stage() -> NicMode<'static> {
    Mode::of_stage(Stage::Reconcile, None)
}

/// A run of an admin who has read this plan.
pub(super) fn with(plan: &Plan) -> NicMode<'_> {
    Mode::of_admin(Some(plan))
}

pub(super) fn nic(number: u32, current: u32, possible: u32) -> Nic {
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
    set_queues(&mut nic, current, &[0, 1]);
    nic
}

fn set_queues(nic: &mut Nic, to: u32, online: &[u32]) {
    let queue = |direction, (index, cpus)| NicQueue {
        direction,
        index,
        cpus: Some(cpus),
        counters: Counters {
            packets: Some(u64::from(index) + 10),
            ..Counters::default()
        },
    };
    // RPS of the remaining queues is kept.
    let old = std::mem::take(&mut nic.queues);
    let rps = |index| {
        let mut kept = old.iter();
        let kept = kept.find(|one| one.direction == Direction::Receive && one.index == index);
        kept.and_then(|one| one.cpus.clone()).unwrap_or_default()
    };
    let receive = (0..to).map(|index| queue(Direction::Receive, (index, rps(index))));
    let transmit = (0u32..)
        .zip(spread(online, to))
        .map(|one| queue(Direction::Transmit, one));
    nic.queues = receive.chain(transmit).collect();
    if let Some(channels) = &mut nic.channels {
        channels.current = to;
    }
}

impl Guest {
    /// Two CPUs, these interfaces, these settings.
    pub(super) fn new(nics: Vec<Nic>, settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().join("root"),
            procfs: dir.path().join("proc"),
            sysfs: dir.path().join("sys"),
            udev_data: dir.path().join("udev"),
        };
        let machine = Machine {
            cpus: Cpus {
                online: vec![0, 1],
                ..Cpus::default()
            },
            nics,
            ..Machine::default()
        };
        let guest = Self {
            dir,
            roots,
            inner: Mutex::new(Inner {
                machine,
                faults: BTreeMap::new(),
                set: Vec::new(),
                rates: BTreeMap::new(),
                touched: false,
                set_at: Duration::ZERO,
                clock: Duration::ZERO,
                packets: BTreeMap::new(),
            }),
        };
        guest.settings(settings);
        guest
    }

    pub(super) fn settings(&self, text: &str) {
        let path = self.dir.path().join("root/etc/virtfleet/agent.yaml");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let head = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n";
        fs::write(path, format!("{head}{text}\n")).unwrap();
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(super) fn fault(&self, nic: &str, fault: Fault) {
        self.inner().faults.insert(nic.to_owned(), fault);
    }

    pub(super) fn queues(&self, nic: &str) -> u32 {
        let inner = self.inner();
        let nic = inner.machine.nics.iter().find(|one| one.name == nic).unwrap();
        nic.channels.unwrap().current
    }

    pub(super) fn wanted(&self) -> Wanted {
        wanted(&settings::load(&self.roots, None))
    }

    pub(super) fn provisioner(&self) -> NicProvisioner<'_> {
        NicProvisioner {
            roots: &self.roots,
            world: self,
            calls: self,
            fail_points: &NoFailPoints,
            boot_id: BOOT,
        }
    }

    pub(super) fn pass(&self, how: NicMode<'_>) -> RunResult<Plan, NicState> {
        self.provisioner().run(&self.wanted(), how).unwrap().unwrap()
    }

    pub(super) fn by_itself(&self) -> RunResult<Plan, NicState> {
        self.pass(by_stage())
    }

    pub(super) fn by_hand(&self) -> RunResult<Plan, NicState> {
        self.pass(Mode::of_admin(None))
    }
}

impl Inner {
    fn nic(&mut self, name: &str) -> Option<&mut Nic> {
        self.machine.nics.iter_mut().find(|nic| nic.name == name)
    }

    fn current(&mut self, name: &str) -> u32 {
        let nic = self.nic(name);
        nic.and_then(|nic| nic.channels)
            .map_or(0, |channels| channels.current)
    }
}

impl World for Guest {
    fn observe(&self) -> Machine {
        self.inner().machine.clone()
    }

    fn link(&self, nic: &str) -> Option<Link> {
        let mut inner = self.inner();
        let current = inner.current(nic);
        let without = match inner.faults.get(nic) {
            Some(Fault::NoCarrier(queues) | Fault::Sticks(queues)) => *queues == current,
            Some(Fault::Dies(queues, after)) => *queues == current && inner.clock >= inner.set_at + *after,
            Some(Fault::ComesUp) => !inner.touched,
            Some(Fault::NoCarrierEver) => inner.touched,
            _ => false,
        };
        let nic = inner.nic(nic)?;
        Some(Link {
            index: nic.index,
            mac: nic.mac.clone(),
            carrier: Some(!without),
            operstate: if without { "down" } else { "up" }.to_owned(),
        })
    }

    fn traffic(&self, nic: &str) -> Option<Traffic> {
        let mut inner = self.inner();
        inner.nic(nic)?;
        let (rx, tx) = inner.packets.get(nic).copied().unwrap_or_default();
        Some(Traffic {
            packets: rx.max(tx),
            rx_bytes: rx * 1000,
            tx_bytes: tx * 500,
        })
    }

    fn softirq(&self) -> Option<Duration> {
        Some(self.inner().clock / 4)
    }

    fn addresses(&self, nic: &str) -> Vec<IpAddr> {
        let mut inner = self.inner();
        let current = inner.current(nic);
        let lost = inner.faults.get(nic) == Some(&Fault::NoAddress(current));
        let address = "10.0.2.15".parse().unwrap();
        if lost { Vec::new() } else { vec![address] }
    }

    fn steer(&self, nic: &str, direction: Direction, queue: u32, cpus: &[u32]) -> io::Result<()> {
        let mut inner = self.inner();
        match inner.faults.get(nic) {
            Some(Fault::NoSteering(errno)) => return Err(io::Error::from_raw_os_error(*errno as i32)),
            Some(Fault::PretendsSteering) => return Ok(()),
            _ => {}
        }
        inner.set.push(format!("{nic} {direction:?} {queue} {cpus:?}"));
        let queues = &mut inner.nic(nic).unwrap().queues;
        let mut found = queues.iter_mut();
        let found = found.find(|one| one.direction == direction && one.index == queue);
        found.unwrap().cpus = Some(cpus.to_vec());
        Ok(())
    }

    fn schedule(&self, disk: &str, scheduler: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.set.push(format!("{disk} {scheduler}"));
        let disk = inner.machine.disks.iter_mut().find(|one| one.name == disk);
        disk.unwrap().scheduler = Some(scheduler.to_owned());
        Ok(())
    }

    fn now(&self) -> Duration {
        self.inner().clock
    }

    fn pause(&self, length: Duration) {
        let mut inner = self.inner();
        inner.clock += length;
        for (nic, rate) in inner.rates.clone() {
            let current = inner.current(&nic);
            let fault = inner.faults.get(&nic).copied();
            let ended = fault == Some(Fault::Ends) && inner.touched;
            if fault != Some(Fault::NoPackets(current)) && !ended {
                let more = rate * u64::try_from(length.as_millis()).unwrap() / 1000;
                let (rx, tx) = inner.packets.entry(nic).or_default();
                *rx += if fault == Some(Fault::NoReceive(current)) {
                    0
                } else {
                    more
                };
                *tx += more;
            }
        }
    }
}

impl NicCalls for Guest {
    fn channels(&self, nic: &str) -> Result<Option<Channels>, Errno> {
        let mut inner = self.inner();
        inner.nic(nic).map(|nic| nic.channels).ok_or(Errno::ENODEV)
    }

    fn set_channels(&self, nic: &str, combined: u32) -> Result<(), Errno> {
        let mut inner = self.inner();
        let online = inner.machine.cpus.online.clone();
        match inner.faults.get(nic).copied() {
            Some(Fault::Answers(errno, left)) if left > 0 => {
                inner
                    .faults
                    .insert(nic.to_owned(), Fault::Answers(errno, left - 1));
                return Err(errno);
            }
            Some(Fault::Sticks(queues)) if combined != queues => return Err(Errno::EIO),
            Some(Fault::Pretends) => return Ok(()),
            Some(Fault::Goes) => {
                inner.machine.nics.retain(|one| one.name != nic);
                return Ok(());
            }
            Some(Fault::IsReplaced) => {
                let found = inner.nic(nic).unwrap();
                found.mac = "02:00:00:00:00:99".to_owned();
                found.index = 99;
                return Ok(());
            }
            _ => {}
        }
        inner.touched = true;
        inner.set_at = inner.clock;
        inner.set.push(format!("{nic} {combined}"));
        let uneven = inner.faults.get(nic) == Some(&Fault::Uneven);
        let nic = inner.nic(nic).ok_or(Errno::ENODEV)?;
        set_queues(nic, combined, if uneven { &online[..1] } else { &online });
        Ok(())
    }

    fn rings(&self, nic: &str) -> Result<Option<Rings>, Errno> {
        let mut inner = self.inner();
        inner.nic(nic).map(|nic| nic.rings).ok_or(Errno::ENODEV)
    }

    fn set_rings(&self, nic: &str, rx: u32, tx: u32) -> Result<(), Errno> {
        let mut inner = self.inner();
        inner.set.push(format!("{nic} rings {rx} {tx}"));
        let rings = inner.nic(nic).and_then(|nic| nic.rings.as_mut());
        let rings = rings.ok_or(Errno::ENODEV)?;
        (rings.rx, rings.tx) = (rx, tx);
        Ok(())
    }

    fn coalescing(&self, _: &str) -> Result<Option<Coalescing>, Errno> {
        Ok(None)
    }
    fn statistics(&self, _: &str) -> Result<Vec<(String, u64)>, Errno> {
        Ok(Vec::new())
    }
    fn queue_counters(&self, _: u32) -> Result<Option<Vec<QueueCounters>>, Errno> {
        Ok(None)
    }
}
