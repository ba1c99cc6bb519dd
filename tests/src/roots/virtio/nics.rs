//! Network interfaces.

use anyhow::Result;
use virtfleet_agent_core::virtio::{Channels, Coalescing, Counters, Direction, Kind, Rings, features::net};
use virtfleet_agent_host::QueueCounters;

use super::{
    super::files::{attributes, put},
    device::Virtio,
    fake_nics::{FakeNic, FakeNics},
    interrupts::Interrupts,
    queues::{queues, spread},
    seats::Seats,
};

/// Hardware behind an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Card {
    /// A virtio device.
    Virtio(Virtio),
    /// A PCI device with this driver: emulated (`e1000e`) or passed through (`mlx5_core`).
    Pci(&'static str),
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// The hardware.
    pub card: Card,
    /// Queue pairs in use.
    pub queues: u32,
    /// Maximum number of queue pairs.
    pub possible: u32,
    /// Whether it is up and has a carrier.
    pub up: bool,
    /// Its MTU.
    pub mtu: u32,
    /// The MTU of networkd's lease; `None` if there is no lease.
    pub dhcp_mtu: Option<u32>,
    /// CPUs for `xps_cpus` of each queue; `None` spreads the online CPUs over the queues, as the
    /// driver does.
    pub xps: Option<Vec<Vec<u32>>>,
    /// Packets received by each receive queue; the last value applies to all further queues. A
    /// packet has 1000 bytes.
    pub received: Vec<u64>,
    /// Packets sent by each transmit queue, as for [`Nic::received`].
    pub sent: Vec<u64>,
    /// Timeouts of each transmit queue.
    pub timeouts: u64,
}

impl Default for Nic {
    /// A virtio interface with one queue.
    fn default() -> Self {
        use net::{
            CSUM, CTRL_VQ, GUEST_CSUM, GUEST_TSO4, GUEST_TSO6, HOST_TSO4, HOST_TSO6, MAC, MRG_RXBUF, MTU,
            STATUS,
        };
        let bits = [
            CSUM, GUEST_CSUM, MTU, MAC, GUEST_TSO4, GUEST_TSO6, HOST_TSO4, HOST_TSO6, MRG_RXBUF, STATUS,
            CTRL_VQ,
        ];
        Self {
            card: Card::Virtio(Virtio::with(&bits)),
            queues: 1,
            possible: 1,
            up: true,
            mtu: 1450,
            dhcp_mtu: Some(1450),
            xps: None,
            received: vec![1000],
            sent: vec![500],
            timeouts: 0,
        }
    }
}

impl Nic {
    /// A virtio interface with `queues` of `possible` queue pairs in use.
    pub fn pairs(queues: u32, possible: u32) -> Self {
        Self {
            queues,
            possible,
            ..Self::default()
        }
    }
    /// An emulated interface, e.g. `e1000e`.
    pub fn emulated(driver: &'static str) -> Self {
        Self {
            card: Card::Pci(driver),
            ..Self::default()
        }
    }
    /// A passed-through PCI function.
    pub fn function(driver: &'static str, queues: u32) -> Self {
        Self {
            card: Card::Pci(driver),
            queues,
            possible: queues,
            ..Self::default()
        }
    }
    /// Its virtio device, for changes.
    pub fn virtio(&mut self) -> Option<&mut Virtio> {
        match &mut self.card {
            Card::Virtio(virtio) => Some(virtio),
            Card::Pci(_) => None,
        }
    }
}

pub(super) fn write(
    nic: &Nic,
    number: u32,
    seats: &mut Seats,
    interrupts: &mut Interrupts,
    drivers: &FakeNics,
) -> Result<()> {
    let (name, index) = (format!("eth{number}"), number + 2);
    let seat = match &nic.card {
        Card::Virtio(virtio) => {
            let mut virtio = *virtio;
            if nic.possible > 1 {
                virtio.features = virtio.features.with(net::MQ);
            }
            let seat = seats.virtio(Kind::NET, "virtio_net", &virtio)?;
            let pair = |queue| [format!("input.{queue}"), format!("output.{queue}")];
            let queues: Vec<String> = (0..nic.possible).flat_map(pair).collect();
            interrupts.virtio(&seat, virtio.lines, &queues);
            seat
        }
        Card::Pci(driver) => {
            let seat = seats.pci(driver)?;
            for queue in 0..nic.queues {
                interrupts.other(&seat, &format!("{name}-TxRx-{queue}"), queue as usize);
            }
            seat
        }
    };
    let folder = format!("{}/net/{name}", seat.folder);
    let or_down = |up: &'static str, down: &'static str| if nic.up { up } else { down };
    attributes(
        &seats.dir,
        &folder,
        &[
            (
                "address",
                &format!("52:54:00:00:{:02x}:{:02x}", number / 256, number % 256),
            ),
            ("ifindex", &index.to_string()),
            ("flags", or_down("0x1003", "0x1002")),
            ("operstate", or_down("up", "down")),
            ("carrier", or_down("1", "0")),
            ("mtu", &nic.mtu.to_string()),
            ("type", "1"),
        ],
    )?;
    seats.link(&format!("{folder}/device"), &format!("../../../{}", seat.name))?;
    seats.link(
        &format!("sys/class/net/{name}"),
        &format!("../../{}", folder.trim_start_matches("sys/")),
    )?;
    if let Some(mtu) = nic.dhcp_mtu {
        let lease = format!("ADDRESS=10.0.0.{number}\nMTU={mtu}\nDNS=10.0.0.1\n");
        put(
            &seats.dir,
            format!("rootfs/run/systemd/netif/leases/{index}"),
            lease,
        )?;
    }
    queues(&seats.dir.join(folder), nic.queues, nic.possible, |queue| {
        let chosen = nic.xps.as_ref().and_then(|all| all.get(queue as usize).cloned());
        chosen.unwrap_or_else(|| spread(drivers.online(), nic.queues, queue))
    })?;
    drivers.add(&name, driver(nic, index, seats.kernel.family));
    Ok(())
}

fn driver(nic: &Nic, index: u32, family: bool) -> FakeNic {
    let packets = |all: &[u64], queue: u32| {
        all.get(queue as usize)
            .or(all.last())
            .copied()
            .unwrap_or_default()
    };
    let (mut statistics, mut told) = (Vec::new(), Vec::new());
    for (direction, short, all) in [
        (Direction::Receive, "rx", &nic.received),
        (Direction::Transmit, "tx", &nic.sent),
    ] {
        for queue in 0..nic.queues {
            let packets = packets(all, queue);
            let mut counter = |name: &str, value| {
                let old = format!("{short}_queue_{queue}_{name}");
                let new = format!("{short}{queue}_{name}");
                statistics.push((if family { new } else { old }, value));
            };
            counter("drops", 0);
            counter("kicks", packets / 10);
            if direction == Direction::Transmit {
                counter("tx_timeouts", nic.timeouts);
            }
            if family {
                told.push(QueueCounters {
                    direction,
                    index: queue,
                    counters: Counters {
                        packets: Some(packets),
                        bytes: Some(packets * 1000),
                        ..Counters::default()
                    },
                });
            } else {
                counter("packets", packets);
                counter("bytes", packets * 1000);
            }
        }
    }
    FakeNic {
        index,
        channels: Some(Channels {
            current: nic.queues,
            possible: nic.possible,
        }),
        rings: Some(Rings {
            rx: 256,
            tx: 256,
            rx_possible: 1024,
            tx_possible: 1024,
        }),
        coalescing: Some(Coalescing::default()),
        statistics,
        queue_counters: family.then_some(told),
        refuses: None,
    }
}
