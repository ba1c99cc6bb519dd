//! `nfsd`: requests to the NFS server, from `/proc/net/rpc/nfsd`.

use virtfleet_agent_core::procfs::rpc::{SERVER_RPC, lines};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use super::nfs_methods::{Counts, SERVER4, V2, V3};
use crate::{CollectError, Collector, Context, RegistryError};

/// Family, HELP, type, and position of the counter: line and index.
const SINGLE: [(&str, &str, MetricType, &str, usize); 11] = [
    (
        "node_nfsd_reply_cache_hits_total",
        "Requests answered from the reply cache because the client had not received the answer.",
        MetricType::Counter,
        "rc",
        0,
    ),
    (
        "node_nfsd_reply_cache_misses_total",
        "Requests stored in the reply cache.",
        MetricType::Counter,
        "rc",
        1,
    ),
    (
        "node_nfsd_reply_cache_nocache_total",
        "Requests that need no reply cache.",
        MetricType::Counter,
        "rc",
        2,
    ),
    (
        "node_nfsd_file_handles_stale_total",
        "Requests with a stale file handle.",
        MetricType::Counter,
        "fh",
        0,
    ),
    (
        "node_nfsd_disk_bytes_read_total",
        "Bytes that the NFS server read.",
        MetricType::Counter,
        "io",
        0,
    ),
    (
        "node_nfsd_disk_bytes_written_total",
        "Bytes that the NFS server wrote.",
        MetricType::Counter,
        "io",
        1,
    ),
    (
        "node_nfsd_server_threads",
        "Threads of the NFS server.",
        MetricType::Gauge,
        "th",
        0,
    ),
    (
        "node_nfsd_read_ahead_cache_size_blocks",
        "Size of the read-ahead cache in blocks; removed in kernel 5.4.",
        MetricType::Gauge,
        "ra",
        0,
    ),
    (
        "node_nfsd_read_ahead_cache_not_found_total",
        "Files that were not in the read-ahead cache.",
        MetricType::Counter,
        "ra",
        11,
    ),
    (
        "node_nfsd_connections_total",
        "TCP connections to the NFS server.",
        MetricType::Counter,
        "net",
        3,
    ),
    (
        "node_nfsd_server_rpcs_total",
        "RPCs of the NFS server.",
        MetricType::Counter,
        "rpc",
        0,
    ),
];

struct Nfsd {
    file: Reread,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Nfsd {
        file: Reread::new(context.roots.proc("net/rpc/nfsd")),
    }))
}

impl Collector for Nfsd {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = match self.file.text() {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("the kernel's NFS server is not loaded"));
            }
            text => text?,
        };
        let counts = Counts::read(lines(&text, SERVER_RPC), &path)?;
        for (name, help, kind, line, index) in SINGLE {
            page.family(name, help, kind).sample(&[], counts.of(line, index));
        }
        let mut family = page.family(
            "node_nfsd_packets_total",
            "Packets of the NFS server by transport, sent and received.",
            MetricType::Counter,
        );
        for (protocol, index) in [("udp", 1), ("tcp", 2)] {
            family.sample(&[("proto", protocol)], counts.of("net", index));
        }
        let mut family = page.family(
            "node_nfsd_rpc_errors_total",
            "Rejected RPCs by error.",
            MetricType::Counter,
        );
        for (error, index) in [("fmt", 2), ("auth", 3), ("cInt", 4)] {
            family.sample(&[("error", error)], counts.of("rpc", index));
        }
        let mut family = page.family(
            "node_nfsd_requests_total",
            "Requests to the NFS server by version and procedure.",
            MetricType::Counter,
        );
        for (line, version, methods) in [("proc2", "2", &V2[..]), ("proc3", "3", &V3[..])] {
            for (index, method) in methods
                .iter()
                .enumerate()
                .filter(|(_, method)| **method != "Null")
            {
                family.sample(&[("proto", version), ("method", method)], counts.of(line, index));
            }
        }
        for (index, method) in SERVER4
            .iter()
            .enumerate()
            .filter(|(_, method)| !method.is_empty())
        {
            family.sample(
                &[("proto", "4"), ("method", method)],
                counts.of("proc4ops", index),
            );
        }
        family.sample(
            &[("proto", "4"), ("method", "WdelegGetattr")],
            counts.of("wdeleg_getattr", 0),
        );
        Ok(())
    }
}
