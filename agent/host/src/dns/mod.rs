//! DNS effects on the guest: reads the configuration ([`observe`]), queries nameservers ([`ask`]),
//! changes the configuration revertibly ([`apply`], [`recover`]), and watches for changes
//! ([`DnsWatch`]). Decisions are made in `agent_core::dns`.

mod ask;
mod change;
mod change_source;
mod lookup;
mod network;
mod observe;
mod watch;

pub use ask::{Ask, QueryMessage, Verdict, ask, random_bytes};
pub use change::{
    Applied, ApplyDnsError, DNS_DIRECTORY, DnsJournalError, RESOLV_CONF, Undone, apply, apply_with,
    keep_last_good, last_good, original, recover, recover_live, unfinished,
};
pub use change_source::DnsChangeSource;
pub use lookup::LookupError;
pub(crate) use lookup::lookup;
pub use network::{DnsClient, Network};
pub use observe::{ObserveDnsError, is_node, observe};
pub use watch::{DnsChange, DnsWatch, DnsWatchError};
