//! `conntrack`: usage of netfilter's connection tracking table, and statistics of its lookups.

use virtfleet_agent_core::procfs::per_cpu::{names, rows};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped, attributes::held_number};

/// A column of `/proc/net/stat/nf_conntrack`, its suffix, and its HELP. The family is
/// `node_nf_conntrack_stat_COLUMN`.
const COLUMNS: [(&str, &str, &str); 8] = [
    (
        "found",
        "node_nf_conntrack_stat_found",
        "Lookups that found a connection.",
    ),
    (
        "invalid",
        "node_nf_conntrack_stat_invalid",
        "Packets that cannot be tracked.",
    ),
    (
        "ignore",
        "node_nf_conntrack_stat_ignore",
        "Packets that already belong to a connection.",
    ),
    (
        "insert",
        "node_nf_conntrack_stat_insert",
        "Connections put into the table.",
    ),
    (
        "insert_failed",
        "node_nf_conntrack_stat_insert_failed",
        "Connections that could not be put into the table.",
    ),
    (
        "drop",
        "node_nf_conntrack_stat_drop",
        "Packets dropped because their connection could not be tracked.",
    ),
    (
        "early_drop",
        "node_nf_conntrack_stat_early_drop",
        "Connections that were evicted from a full table.",
    ),
    (
        "search_restart",
        "node_nf_conntrack_stat_search_restart",
        "Lookups restarted because the table was resized.",
    ),
];

struct Conntrack {
    count: Reread,
    limit: Reread,
    stat: Reread,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let small = |path: &str| Reread::with_limit(context.roots.proc(path), 4096);
    Ok(Box::new(Conntrack {
        count: small("sys/net/netfilter/nf_conntrack_count"),
        limit: small("sys/net/netfilter/nf_conntrack_max"),
        stat: Reread::new(context.roots.proc("net/stat/nf_conntrack")),
    }))
}

impl Collector for Conntrack {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut skipped = Skipped::default();
        for (file, name, help) in [
            (
                &mut self.count,
                "node_nf_conntrack_entries",
                "Connections in netfilter's tracking table.",
            ),
            (
                &mut self.limit,
                "node_nf_conntrack_entries_limit",
                "Maximum number of connections in netfilter's tracking table.",
            ),
        ] {
            match file.refresh() {
                Err(error) if error.is_missing() => {
                    return Err(CollectError::no_data(
                        "netfilter's connection tracking is not active",
                    ));
                }
                result => result?,
            }
            if let Some(number) = skipped.take(held_number(file)) {
                page.gauge(name, help, number);
            }
        }
        let path = self.stat.path().to_owned();
        let text = match self.stat.text() {
            // A kernel without CONFIG_NF_CONNTRACK_PROCFS has only the two values above.
            Err(error) if error.is_missing() => return skipped.end(),
            text => text?,
        };
        // By name, because the first columns have changed their meaning over time.
        let columns = COLUMNS.map(|(column, ..)| names(&text).position(|name| name == column));
        let mut sums = [0_u64; COLUMNS.len()];
        let mut any = false;
        // The sum of the other CPUs would be wrong.
        let all = rows(&text).collect::<Result<Vec<_>, _>>();
        let Some(all) = skipped.take(all.map_err(CollectError::parse(&path))) else {
            return skipped.end();
        };
        for row in all {
            for (sum, column) in sums.iter_mut().zip(columns) {
                let value = column.and_then(|column| row.get(column));
                *sum = sum.wrapping_add(value.copied().unwrap_or_default());
            }
            any = true;
        }
        if !any {
            return Err(CollectError::failed(format!("{} lists no CPU", path.display())));
        }
        for ((_, name, help), sum) in COLUMNS.iter().zip(sums) {
            page.family(name, help, MetricType::Gauge).sample(&[], sum as f64);
        }
        skipped.end()
    }
}
