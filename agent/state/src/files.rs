//! Definitions of the state files.

use virtfleet_agent_core::{
    disks::state::{self as disks, DisksState},
    dns::state::{self as dns, DnsState},
    enrolment::node_proof::{self, NodeProofRecord},
    guest::health::{self, GuestHealth},
    nic::state::{self as nic, NicState},
    pass::{self, GuestRecord},
    push::record::{self as way, WayRecord},
};
use virtfleet_wire::node_proof::MAX_NODE_PROOF_BYTES;

use crate::file::{StateFile, StateRecord};

/// Results of the last reconcile run of each stage.
pub static GUEST_RECORD: StateFile<GuestRecord> = StateFile::new(
    "/run/virtfleet/state/guest.json",
    "a record of reconcile runs",
    pass::FORMAT,
    256 * 1024,
);
/// Secondary disks.
pub static DISKS_STATE: StateFile<DisksState> = StateFile::new(
    "/run/virtfleet/state/disks.json",
    "a state of disks",
    disks::FORMAT,
    1 << 20,
);
pub static DNS_STATE: StateFile<DnsState> = StateFile::new(
    "/run/virtfleet/state/dns.json",
    "a state of DNS",
    dns::FORMAT,
    1 << 20,
);
/// Queues of network interfaces.
pub static NIC_STATE: StateFile<NicState> = StateFile::new(
    "/run/virtfleet/state/nic.json",
    "a state of queues",
    nic::FORMAT,
    1 << 20,
);
/// What only root can read of the node's health: the validity of kubelet's certificates.
pub static GUEST_HEALTH: StateFile<GuestHealth> = StateFile::new(
    "/run/virtfleet/state/guest-health.json",
    "a state of the node's health",
    health::FORMAT,
    256 * 1024,
);
/// The kubelet's key vouches for the agent's key. A chain of several RSA certificates fits.
pub static NODE_PROOF: StateFile<NodeProofRecord> = StateFile::new(
    "/run/virtfleet/state/node-proof.json",
    "a node proof",
    node_proof::FORMAT,
    MAX_NODE_PROOF_BYTES + 1024,
);
/// How collectors reach the agent. The running agent writes it.
pub static WAY_RECORD: StateFile<WayRecord> = StateFile::new(
    "/run/virtfleet-agent/way.json",
    "a record of how collectors reach the agent",
    way::FORMAT,
    64 * 1024,
);

macro_rules! record {
    ($($record:ty),+) => {$(
        impl StateRecord for $record {
            fn format(&self) -> u32 {
                self.v
            }
            fn boot_id(&self) -> &str {
                &self.boot_id
            }
        }
    )+};
}
record!(
    GuestRecord,
    DisksState,
    DnsState,
    NicState,
    GuestHealth,
    NodeProofRecord,
    WayRecord
);
