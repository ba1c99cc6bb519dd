//! What the kernel of these tests answers to `NetworkCalls`: two devices of a KubeVirt guest with
//! virtio-net.

use std::{collections::BTreeMap, io};

use nix::errno::Errno;
use virtfleet_agent_core::netlink::{
    link::{Link, LinkCounters},
    qdisc::Qdisc,
    route::{Hop, Route},
};
use virtfleet_agent_host::{
    Driver, Ethtool, InterfaceAddresses, LinkModes, NetworkCalls, NetworkError, TcpSockets,
};

use crate::exposition::world::FakeKernel;

impl NetworkCalls for FakeKernel {
    fn links(&self) -> Result<Vec<Link>, NetworkError> {
        unreachable!("the roots of these tests are no /sys")
    }
    fn link_counters(&self) -> Result<Vec<LinkCounters>, NetworkError> {
        unreachable!("the roots of these tests are no /sys")
    }
    fn device_name(&self, index: u32) -> Option<String> {
        let name = ["lo", "eth0", "eth1"].get(index.checked_sub(1)? as usize)?;
        Some((*name).to_owned())
    }
    fn arp_entries(&self) -> Result<BTreeMap<u32, u64>, NetworkError> {
        // The last one has just gone.
        Ok(BTreeMap::from([(2, 17), (3, 2), (9, 1)]))
    }
    fn routes(&self) -> Result<Vec<Route>, NetworkError> {
        let route = |destination: [u8; 4], length, hops| Route {
            unicast: true,
            protocol: 2,
            destination: (length > 0).then(|| destination.into()),
            length,
            source: Some([10, 0, 2, 2].into()),
            priority: 0,
            hops,
        };
        let hop = |device, gateway: Option<[u8; 4]>, weight| Hop {
            device,
            gateway: gateway.map(Into::into),
            weight,
        };
        Ok(vec![
            Route {
                protocol: 16,
                priority: 100,
                ..route([0; 4], 0, vec![hop(2, Some([10, 0, 2, 1]), None)])
            },
            route([10, 0, 2, 0], 24, vec![hop(2, None, None)]),
            // Once more in another table.
            route([10, 0, 2, 0], 24, vec![hop(2, None, None)]),
            Route {
                protocol: 186,
                source: None,
                ..route(
                    [10, 9, 0, 0],
                    16,
                    vec![
                        hop(2, Some([10, 0, 2, 3]), Some(1)),
                        hop(3, Some([192, 168, 7, 1]), Some(3)),
                    ],
                )
            },
            Route {
                unicast: false,
                ..route([127, 0, 0, 1], 32, vec![hop(1, None, None)])
            },
        ])
    }
    fn qdiscs(&self) -> Result<Vec<Qdisc>, NetworkError> {
        let qdisc = |device, root, kind: &str| Qdisc {
            device,
            root,
            kind: kind.to_owned(),
            bytes: 8_123_456_789,
            packets: 31_234_567,
            drops: 4,
            requeues: 11,
            overlimits: 2,
            queued: 1,
            backlog: 90,
        };
        Ok(vec![
            qdisc(1, true, "noqueue"),
            qdisc(2, true, "mq"),
            qdisc(2, false, "fq_codel"),
            qdisc(9, true, "fq_codel"),
        ])
    }
    fn tcp_sockets(&self) -> Result<TcpSockets, NetworkError> {
        Ok(TcpSockets {
            states: [(1, 100), (6, 31), (10, 9)].into(),
            receive_queue: 6,
            transmit_queue: 8192,
        })
    }
    fn addresses(&self) -> io::Result<InterfaceAddresses> {
        Ok(InterfaceAddresses::from([(
            "eth0".to_owned(),
            vec![([10, 0, 2, 2].into(), 24)],
        )]))
    }
    fn ethtool(&self, device: &str) -> Result<Ethtool, NetworkError> {
        match device {
            "eth0" => Ok(Ethtool {
                // virtio-net has modes only with VIRTIO_NET_F_SPEED_DUPLEX; here it is as passed
                // through.
                link: Some(LinkModes {
                    supported: 0b10_0001_0110_1111,
                    advertised: 0b10_0000_0110_0000,
                    autonegotiate: true,
                }),
                driver: Some(Driver {
                    name: "virtio_net".into(),
                    version: "1.0.0".into(),
                    firmware: String::new(),
                    bus: "0000:01:00.0".into(),
                    rom: String::new(),
                    counters: 3,
                }),
                counters: [
                    ("rx_queue_0_packets", 41),
                    ("tx_queue_0_kicks", 7),
                    ("rx_packets", 40),
                ]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            }),
            "lo" | "eth1" => Ok(Ethtool::default()),
            _ => Err(Errno::ENODEV.into()),
        }
    }
}
