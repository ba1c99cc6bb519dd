//! The virtio devices of guests of all kinds as the agent sees them: kernels old and new, none to
//! many, broken and going away, and this very machine's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hostile;
mod kinds;
mod sizes;
mod this_machine;

use virtfleet_agent_core::virtio::Machine;
use virtfleet_agent_host::virtio::observe;
use virtfleet_tests::roots::virtio::Tree;

/// Writes a tree and looks at it once, offered features and all.
fn seen(tree: &Tree) -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let guest = tree.write(folder.path()).unwrap();
    observe(&guest.roots, &guest.nics, true)
}
