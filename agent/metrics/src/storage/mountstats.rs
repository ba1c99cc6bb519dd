//! `mountstats`: statistics of NFS clients by server, from `/proc/self/mountstats` and
//! `/proc/self/mountinfo`.

use std::collections::HashSet;

use virtfleet_agent_core::procfs::{
    mountinfo::{mounts, unescape},
    mountstats::{NfsMount, nfs_mounts},
};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// A family and its HELP.
type Family = (&'static str, &'static str);

/// Byte and page counters in the kernel's order.
#[rustfmt::skip]
static BYTES: [Family; NfsMount::BYTES] = [
    ("node_mountstats_nfs_read_bytes_total", "Bytes read by read(2)."),
    ("node_mountstats_nfs_write_bytes_total", "Bytes written by write(2)."),
    ("node_mountstats_nfs_direct_read_bytes_total", "Bytes read with O_DIRECT."),
    ("node_mountstats_nfs_direct_write_bytes_total", "Bytes written with O_DIRECT."),
    ("node_mountstats_nfs_total_read_bytes_total", "Bytes read from the server."),
    ("node_mountstats_nfs_total_write_bytes_total", "Bytes written to the server."),
    ("node_mountstats_nfs_read_pages_total", "Pages read through mappings."),
    ("node_mountstats_nfs_write_pages_total", "Pages written through mappings."),
];

/// Event counters in the kernel's order; an entry without a name is not exported.
#[rustfmt::skip]
static EVENTS: [Family; NfsMount::EVENTS] = [
    ("node_mountstats_nfs_event_inode_revalidate_total", "Revalidations of inode attributes."),
    ("node_mountstats_nfs_event_dnode_revalidate_total", "Revalidations of directory entries."),
    ("node_mountstats_nfs_event_data_invalidate_total", "Invalidations of cached inode data."),
    ("node_mountstats_nfs_event_attribute_invalidate_total", "Invalidations of cached inode attributes."),
    ("node_mountstats_nfs_event_vfs_open_total", "Files and directories opened."),
    ("node_mountstats_nfs_event_vfs_lookup_total", "Names looked up."),
    ("node_mountstats_nfs_event_vfs_access_total", "Permission checks."),
    ("node_mountstats_nfs_event_vfs_update_page_total", "Pages updated."),
    ("node_mountstats_nfs_event_vfs_read_page_total", "Pages read one by one."),
    ("node_mountstats_nfs_event_vfs_read_pages_total", "Groups of pages read."),
    ("node_mountstats_nfs_event_vfs_write_page_total", "Pages written one by one."),
    ("node_mountstats_nfs_event_vfs_write_pages_total", "Groups of pages written."),
    ("node_mountstats_nfs_event_vfs_getdents_total", "Directories listed."),
    ("node_mountstats_nfs_event_vfs_setattr_total", "Attributes set."),
    ("node_mountstats_nfs_event_vfs_flush_total", "Files flushed."),
    ("node_mountstats_nfs_event_vfs_fsync_total", "Calls of fsync."),
    ("node_mountstats_nfs_event_vfs_lock_total", "Lock requests."),
    ("node_mountstats_nfs_event_vfs_file_release_total", "Files closed."),
    ("", ""),
    ("node_mountstats_nfs_event_truncation_total", "Files truncated."),
    ("node_mountstats_nfs_event_write_extension_total", "Writes that extended a file."),
    ("node_mountstats_nfs_event_silly_rename_total", "Files removed while they were open."),
    ("node_mountstats_nfs_event_short_read_total", "Reads that returned less than requested."),
    ("node_mountstats_nfs_event_short_write_total", "Writes that wrote less than requested."),
    ("node_mountstats_nfs_event_jukebox_delay_total", "Delays requested by the server because its data is on slow storage."),
    ("node_mountstats_nfs_event_pnfs_read_total", "Reads by pNFS."),
    ("node_mountstats_nfs_event_pnfs_write_total", "Writes by pNFS."),
];

/// Operation counters with their divisors.
#[rustfmt::skip]
static OPERATIONS: [(&str, &str, f64); NfsMount::OPERATION] = [
    ("node_mountstats_nfs_operations_requests_total", "Requests.", 1.0),
    ("node_mountstats_nfs_operations_transmissions_total", "Times a request was sent.", 1.0),
    ("node_mountstats_nfs_operations_major_timeouts_total", "Requests with a major timeout.", 1.0),
    ("node_mountstats_nfs_operations_sent_bytes_total", "Bytes sent.", 1.0),
    ("node_mountstats_nfs_operations_received_bytes_total", "Bytes received.", 1.0),
    ("node_mountstats_nfs_operations_queue_time_seconds_total", "Time that requests waited to be sent.", 1000.0),
    ("node_mountstats_nfs_operations_response_time_seconds_total", "Time that requests waited for responses.", 1000.0),
    ("node_mountstats_nfs_operations_request_time_seconds_total", "Total time of requests.", 1000.0),
];

/// Transport counters: index, family, HELP, type.
#[rustfmt::skip]
static TRANSPORTS: [(usize, &str, &str, MetricType); 10] = [
    (1, "node_mountstats_nfs_transport_bind_total", "Connections established from scratch.", MetricType::Counter),
    (2, "node_mountstats_nfs_transport_connect_total", "Connections by TCP.", MetricType::Counter),
    (4, "node_mountstats_nfs_transport_idle_time_seconds", "Time since the last request.", MetricType::Gauge),
    (5, "node_mountstats_nfs_transport_sends_total", "Requests sent.", MetricType::Counter),
    (6, "node_mountstats_nfs_transport_receives_total", "Responses received.", MetricType::Counter),
    (7, "node_mountstats_nfs_transport_bad_transaction_ids_total", "Responses without a matching request.", MetricType::Counter),
    (9, "node_mountstats_nfs_transport_backlog_queue_total", "Requests added to the backlog.", MetricType::Counter),
    (10, "node_mountstats_nfs_transport_maximum_rpc_slots", "Maximum number of concurrent requests.", MetricType::Gauge),
    (11, "node_mountstats_nfs_transport_sending_queue_total", "Requests added to the sending queue.", MetricType::Counter),
    (12, "node_mountstats_nfs_transport_pending_queue_total", "Requests added to the queue of pending responses.", MetricType::Counter),
];

struct Mountstats {
    stats: Reread,
    info: Reread,
}

/// A mount's statistics and labels.
struct Row<'a> {
    mount: &'a NfsMount<'a>,
    labels: [(&'static str, &'a str); 3],
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Mountstats {
        stats: Reread::new(context.roots.proc("self/mountstats")),
        info: Reread::new(context.roots.proc("self/mountinfo")),
    }))
}

impl Collector for Mountstats {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.stats.path().to_owned();
        let text = self.stats.text()?;
        let mut skipped = Skipped::default();
        let all = nfs_mounts(&text, skipped.of(&path));
        if all.is_empty() {
            // node_exporter reports nothing and success in this case.
            return skipped.end();
        }
        let path = self.info.path().to_owned();
        // Both files list the same mounts in the same order, so a malformed line of mountinfo makes
        // the addresses of all mounts unknown.
        let addresses: Vec<_> = mounts(self.info.read()?)
            .map(|mount| {
                let mount = mount.map_err(CollectError::parse(&path))?;
                let mount_point = String::from_utf8_lossy(&mount.mount_point).into_owned();
                Ok((mount_point, address(mount.super_options)))
            })
            .collect::<Result<_, CollectError>>()?;
        let mut family = page.family(
            "node_mountstats_nfs_mountpoint_info",
            "Mount of an export, always 1.",
            MetricType::Gauge,
        );
        let (mut places, mut servers) = (HashSet::new(), HashSet::new());
        let mut rows = Vec::new();
        for mount in &all {
            let mount_point = unescape(mount.mount_point.as_bytes());
            let mount_point = String::from_utf8_lossy(&mount_point);
            // A malformed line of mountstats may be a mount more, or one less.
            let known = addresses
                .get(mount.index)
                .filter(|(path, _)| *path == mount_point);
            let known = known.ok_or_else(|| {
                let (path, place) = (path.display(), mount.mount_point);
                CollectError::failed(format!("{path} has another mount than {place} in its place"))
            });
            let Some((_, address)) = skipped.take(known) else {
                continue;
            };
            for transport in &mount.transports {
                let labels = [
                    ("export", mount.device),
                    ("protocol", transport.protocol),
                    ("mountaddr", address),
                ];
                if places.insert((labels, mount.mount_point)) {
                    let [export, protocol, address] = labels;
                    let labels = [export, protocol, address, ("mountpoint", mount.mount_point)];
                    family.sample(&labels, 1.0);
                }
                // Mounts of one export share their statistics.
                if !servers.insert(labels) {
                    break;
                }
                rows.push(Row { mount, labels });
            }
        }
        write(page, &rows);
        skipped.end()
    }
}

/// The option `addr`.
fn address(options: &[u8]) -> String {
    let address = options
        .split(|byte| *byte == b',')
        .find_map(|option| option.strip_prefix(b"addr="));
    String::from_utf8_lossy(address.unwrap_or_default()).into_owned()
}

fn write(page: &mut Page, rows: &[Row<'_>]) {
    let mut family = page.family(
        "node_mountstats_nfs_age_seconds_total",
        "Time since the export was mounted.",
        MetricType::Counter,
    );
    for row in rows {
        if let Some(age) = row.mount.age {
            family.sample(&row.labels, age as f64);
        }
    }
    for (index, (name, help)) in BYTES.iter().enumerate() {
        let mut family = page.family(name, help, MetricType::Counter);
        for row in rows {
            if let Some(value) = row.mount.bytes.get(index) {
                family.sample(&row.labels, *value as f64);
            }
        }
    }
    for (place, name, help, kind) in &TRANSPORTS {
        let mut family = page.family(name, help, *kind);
        for row in rows {
            for (number, transport) in row.mount.transports.iter().enumerate() {
                let number = number.to_string();
                let labels = with(&row.labels, ("transport", &number));
                family.sample(&labels, transport.values[*place] as f64);
            }
        }
    }
    for (index, (name, help, divisor)) in OPERATIONS.iter().enumerate() {
        let mut family = page.family(name, help, MetricType::Counter);
        for row in rows {
            let mut seen = HashSet::new();
            for (operation, values) in &row.mount.operations {
                if seen.insert(operation) {
                    let labels = with(&row.labels, ("operation", operation));
                    family.sample(&labels, values[index] as f64 / divisor);
                }
            }
        }
    }
    for (index, (name, help)) in EVENTS.iter().enumerate() {
        if name.is_empty() {
            continue;
        }
        let mut family = page.family(name, help, MetricType::Counter);
        for row in rows {
            if let Some(value) = row.mount.events.get(index) {
                family.sample(&row.labels, *value as f64);
            }
        }
    }
}

fn with<'a>(
    labels: &[(&'static str, &'a str); 3],
    last: (&'static str, &'a str),
) -> [(&'static str, &'a str); 4] {
    let [export, protocol, address] = *labels;
    [export, protocol, address, last]
}
