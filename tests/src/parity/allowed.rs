//! The intended differences, each with its reason. Keep the list short: any other difference is a
//! bug of the agent.

use super::compare::{Difference, What};

/// The place in [`Allowed::at`] for the machine on which the tests run. Its hardware is unknown, so
/// a difference that is allowed there need not occur.
pub const MACHINE: &str = "machine";

/// The place in [`Allowed::at`] for all roots: for values that both programs read from the running
/// kernel, not from the roots.
pub const ANYWHERE: &str = "anywhere";

/// An intended difference.
#[derive(Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The family; `node_x_*` matches all families with that prefix.
    pub family: &'static str,
    /// The kind of difference.
    pub what: What,
    /// The part of the family that may differ.
    pub only: Only,
    /// The places where it is allowed: [`MACHINE`], `generated`, a fixture's name, or [`ANYWHERE`].
    pub at: &'static [&'static str],
    /// The reason.
    pub reason: &'static str,
}

/// Scope of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    /// The whole family.
    Everything,
    /// The values of these labels, or their presence; without these labels the series are equal.
    Labels(&'static [&'static str]),
    /// Series in which the value of this label has one of these prefixes.
    Starts(&'static str, &'static [&'static str]),
}

impl Allowed {
    /// An entry for the whole family.
    pub const fn new(
        family: &'static str,
        what: What,
        at: &'static [&'static str],
        reason: &'static str,
    ) -> Self {
        Self {
            family,
            what,
            only: Only::Everything,
            at,
            reason,
        }
    }

    /// Limits the entry to a part of the family.
    #[must_use]
    pub const fn only(self, only: Only) -> Self {
        Self { only, ..self }
    }

    /// Whether the entry explains all of `difference`.
    pub fn explains(&self, difference: &Difference) -> bool {
        let named = match self.family.strip_suffix('*') {
            Some(start) => difference.family.starts_with(start),
            None => self.family == difference.family,
        };
        if !named || self.what != difference.what {
            return false;
        }
        match self.only {
            Only::Everything => true,
            Only::Labels(labels) => {
                let without = |keys: &std::collections::BTreeSet<super::Key>| {
                    let mut keys: Vec<_> = keys.iter().map(|key| key.without(labels)).collect();
                    keys.sort();
                    keys
                };
                without(&difference.theirs) == without(&difference.ours)
            }
            Only::Starts(label, starts) => difference.theirs.iter().chain(&difference.ours).all(|key| {
                key.labels
                    .iter()
                    .any(|(name, text)| name == label && starts.iter().any(|start| text.starts_with(start)))
            }),
        }
    }
}

/// Reason for values that come from connections of other programs on the same machine.
const PASSING: &str =
    "a connection that begins or ends is in this state for an instant, and programs beside have some";

/// All intended differences.
pub static ALLOWED: &[Allowed] = &[
    Allowed::new(
        "node_filesystem_readonly",
        What::Value,
        &[MACHINE, "generated", "kubevirt"],
        "1.11 says 0 for a read-only mount of a writable superblock, as a read-only bind mount is; 1.12 and we say 1",
    ),
    Allowed::new(
        "node_sockstat_sockets_used",
        What::Value,
        &[MACHINE],
        "each program opens sockets of its own while it is scraped",
    ),
    Allowed::new(
        "node_tcp_connection_states",
        What::Value,
        &[ANYWHERE],
        "what waits in a socket's queue differs from one moment to the next",
    )
    .only(Only::Starts("state", &["tx_queued_bytes"])),
    Allowed::new("node_tcp_connection_states", What::Value, &[ANYWHERE], PASSING)
        .only(Only::Starts("state", &["fin_wait"])),
    Allowed::new("node_tcp_connection_states", What::Value, &[ANYWHERE], PASSING)
        .only(Only::Starts("state", &["last_ack"])),
    Allowed::new("node_tcp_connection_states", What::Value, &[ANYWHERE], PASSING)
        .only(Only::Starts("state", &["syn_"])),
    Allowed::new("node_tcp_connection_states", What::Value, &[ANYWHERE], PASSING)
        .only(Only::Starts("state", &["clos"])),
    Allowed::new(
        "node_tcp_connection_states",
        What::Value,
        &[ANYWHERE],
        "what waits in a socket's queue differs from one moment to the next",
    )
    .only(Only::Starts("state", &["rx_queued_bytes"])),
    Allowed::new(
        "node_disk_info",
        What::Labels,
        &[MACHINE, "generated", "kubevirt"],
        "theirs says rotational 0 where any of some thirty queue files is missing; we read the one that says it",
    )
    .only(Only::Labels(&["rotational"])),
    Allowed::new(
        "node_hwmon_*",
        What::Labels,
        &[MACHINE, "hardware"],
        "1.11 gives two chips of one device one label and mixes their sensors; 1.12 and we tell them apart by name",
    )
    .only(Only::Starts("chip", &["platform_asus_nb_wmi"])),
    Allowed::new(
        "node_interrupts_total",
        What::Labels,
        &[MACHINE, "kubevirt"],
        "theirs counts columns where a CPU is off; we give the number of the CPU",
    )
    .only(Only::Labels(&["cpu"])),
    Allowed::new(
        "node_selinux_enabled",
        What::Value,
        &["generated", "kubevirt"],
        "theirs asks the kernel that runs it, whatever roots it is given; we ask the roots",
    ),
    Allowed::new(
        "node_scrape_collector_success",
        What::Value,
        &[MACHINE, "generated"],
        "theirs says no data after writing all of it where sysfs has no array with all its attributes",
    )
    .only(Only::Starts("collector", &["mdadm"])),
    Allowed::new(
        "node_scrape_collector_success",
        What::Value,
        &["hardware"],
        "as above; and theirs fails at a negative time in a pool's io, which ZFS prints after an overflow",
    )
    .only(Only::Starts("collector", &["mdadm", "zfs"])),
];
