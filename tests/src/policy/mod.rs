//! NetworkPolicies, enforced by the kernel of the test machine.
//!
//! ```text
//! shipped YAML ─ document ─▶ NetworkPolicy ─┐
//! Deployments, test ───────▶ Pod ───────────┴─ allowed ─▶ PodRules ─ nft ─▶ rules ─ scene ─▶ connections
//! ```
//! The scene has a network namespace for each pod, connected by a bridge in one more namespace, the
//! node. Rules of nftables in a pod's namespace enforce the policies that select it, as a network
//! plugin does. Connections are real; nothing outside of the namespaces is reached or changed.

mod allowed;
mod document;
mod manifests;
mod nft;
mod pod;
mod scene;
mod selector;

pub use document::{Direction, IpBlock, NetworkPolicy, PolicyPeer, PolicyRule, Protocol, read_policies};
pub use manifests::Manifest;
pub use pod::{ContainerPort, Pod, PodNamespace};
pub use scene::{NODE, Place, PolicyScene, Reach, ipv6_of, needs};
pub use selector::{LabelSelector, Labels};
