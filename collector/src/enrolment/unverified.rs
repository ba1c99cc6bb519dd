//! A connection to a program that answers at an agent's address and has no certificate yet. Nothing
//! that it sends is data of a guest: this type has the requests of enrolment and no other.

use std::time::Duration;

use virtfleet_collector_core::{
    dial::DialTarget,
    enrolment::{EnrolmentReason, KeyFingerprint},
};
use virtfleet_runtime::tls::{DeferredTls, VmIdentity};
use virtfleet_wire::ids::VmKey;

use super::{channel::EnrolmentChannel, failure::EnrolmentFailure};
use crate::{
    clock::unix_seconds,
    scrape::{connection::parse_peer, transport::AgentTransport},
};

/// A connection to a program whose key is known and whose identity is not.
#[derive(Debug)]
pub(super) struct UnverifiedAgent {
    transport: AgentTransport,
    key: KeyFingerprint,
}

impl UnverifiedAgent {
    /// Connects to `target`. `tls` accepts every certificate of the server; the handshake proves
    /// that the server has the certificate's key.
    ///
    /// # Errors
    /// The connection fails; or what answers has a valid certificate of another VM, to whose agent
    /// somebody forwards the port: then nothing is asked of it. The pull before this was another
    /// connection, and may have met another program.
    pub(super) async fn open(
        target: &DialTarget,
        timeout: Duration,
        tls: &DeferredTls,
    ) -> Result<Self, EnrolmentFailure> {
        let (transport, chain) = AgentTransport::open(target, timeout, tls.config(), &mut None)
            .await
            .map_err(|error| target.way.explain(error.failure))?;
        let peer = parse_peer(&chain, target.address)?;
        if let Some(other) = other_vm(&peer.names, &target.key)
            && tls.check(&chain, unix_seconds()).is_ok()
        {
            let message = format!(
                "the agent at {} has the certificate of {other}, so it is asked for nothing",
                target.address
            );
            return Err(EnrolmentFailure::new(EnrolmentReason::KeyOfAnotherVm, message));
        }
        Ok(Self {
            transport,
            key: peer.key,
        })
    }

    pub(super) fn channel(&mut self) -> EnrolmentChannel<'_> {
        EnrolmentChannel::new(&mut self.transport, self.key)
    }
}

/// The VM that a certificate with these names is of, if it is not `vm`. The trust domain may have
/// changed since.
fn other_vm(names: &[String], vm: &VmKey) -> Option<VmKey> {
    let identity = names.iter().find_map(|name| VmIdentity::from_uri(name))?;
    let shown = VmKey {
        namespace: identity.namespace,
        name: identity.name,
    };
    (shown != *vm).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_another_vm_in_any_trust_domain() {
        let vm = VmKey {
            namespace: "ns".parse().unwrap(),
            name: "a".parse().unwrap(),
        };
        let other = |name: &str| other_vm(&["x".to_owned(), name.to_owned()], &vm);
        assert_eq!(other("spiffe://d/vmi/ns/b/1").unwrap().to_string(), "ns/b");
        assert_eq!(other("spiffe://e/vmi/other/a/1").unwrap().to_string(), "other/a");
        for same in ["spiffe://d/vmi/ns/a/1", "spiffe://e/vmi/ns/a/2", "y"] {
            assert_eq!(other(same), None, "{same}");
        }
    }
}
