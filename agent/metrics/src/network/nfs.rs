//! `nfs`: requests of the NFS client, from `/proc/net/rpc/nfs`.

use virtfleet_agent_core::procfs::rpc::{CLIENT_RPC, lines};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use super::nfs_methods::{CLIENT4, Counts, V2, V3};
use crate::{CollectError, Collector, Context, RegistryError};

struct Nfs {
    file: Reread,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Nfs {
        file: Reread::new(context.roots.proc("net/rpc/nfs")),
    }))
}

impl Collector for Nfs {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = match self.file.text() {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("the kernel's NFS client is not loaded"));
            }
            text => text?,
        };
        let counts = Counts::read(lines(&text, CLIENT_RPC), &path)?;
        let mut family = page.family(
            "node_nfs_packets_total",
            "Packets of the NFS client by transport, sent and received.",
            MetricType::Counter,
        );
        for (protocol, index) in [("udp", 1), ("tcp", 2)] {
            family.sample(&[("protocol", protocol)], counts.of("net", index));
        }
        for (name, help, line, index) in [
            (
                "node_nfs_connections_total",
                "TCP connections of the NFS client.",
                "net",
                3,
            ),
            ("node_nfs_rpcs_total", "RPCs of the NFS client.", "rpc", 0),
            (
                "node_nfs_rpc_retransmissions_total",
                "Retransmitted RPCs.",
                "rpc",
                1,
            ),
            (
                "node_nfs_rpc_authentication_refreshes_total",
                "Number of times that RPCs refreshed their authentication.",
                "rpc",
                2,
            ),
        ] {
            page.counter(name, help, counts.of(line, index));
        }
        let mut family = page.family(
            "node_nfs_requests_total",
            "Requests of the NFS client by version and procedure.",
            MetricType::Counter,
        );
        for (line, version, methods) in [
            ("proc2", "2", &V2[..]),
            ("proc3", "3", &V3[..]),
            ("proc4", "4", &CLIENT4[..]),
        ] {
            for (index, method) in methods.iter().enumerate() {
                family.sample(&[("proto", version), ("method", method)], counts.of(line, index));
            }
        }
        Ok(())
    }
}
