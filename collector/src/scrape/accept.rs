//! Verifies an agent that has connected to the collector: the same checks as after a dial, except
//! that the certificate says which VM it is.

use std::{net::SocketAddr, time::Instant};

use tokio::net::TcpStream;
use virtfleet_collector_core::{
    dial::DialTarget,
    enrolment::KeyFingerprint,
    pull_result::{Failure, FailureClass},
};
use virtfleet_wire::ids::VmKey;

use super::{
    Puller,
    connection::{AgentConnection, named_vm, parse_peer},
    transport::AgentTransport,
};
use crate::clock::unix_seconds;

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) enum AcceptedAgent {
    /// The certificate names a VM that runs, and is used.
    Verified(Box<AgentConnection>),
    /// The certificate is not used.
    Unverified(Box<UnverifiedPeer>),
}

/// A program whose key is known and whose identity is not.
#[derive(Debug)]
pub(crate) struct UnverifiedPeer {
    pub(crate) transport: AgentTransport,
    /// Its key, which the handshake has proved.
    pub(crate) key: KeyFingerprint,
    /// Why its certificate is not used.
    pub(crate) rejected: Failure,
    /// The VM that its certificate names, if that is valid.
    pub(crate) named: Option<VmKey>,
}

impl Puller {
    /// Runs the handshake on a connection that `address` opened. `locate` finds the VM that the
    /// certificate names. The caller limits the time.
    ///
    /// # Errors
    /// The handshake failed, or this collector has no certificate yet.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        locate: impl Fn(&VmKey) -> Result<DialTarget, Failure> + Send,
    ) -> Result<AcceptedAgent, Failure> {
        let dialler = &self.dialler;
        let now = Instant::now();
        // Before the configuration, so that a later one counts as a change.
        let authorities = dialler.tls.authorities(now);
        let tls = dialler.tls.deferred(now).ok_or_else(|| {
            let message = "this collector has no certificate yet; its log has the reason";
            Failure::new(FailureClass::Tls, message)
        })?;
        let tls = tls.for_push();
        let opened = AgentTransport::over(stream, address, tls.config()).await;
        let (transport, chain) = opened.map_err(|error| error.failure)?;
        let peer = parse_peer(&chain, address)?;
        let valid = tls.check(&chain, unix_seconds()).map_err(|error| {
            let message = format_args!("the certificate of the agent at {address} is not valid: {error}");
            Failure::new(FailureClass::Tls, message)
        });
        let valid = valid.and_then(|()| require_vm(&peer.names, &dialler.trust_domain, address));
        let named = valid.as_ref().ok().cloned();
        let verified = valid.and_then(|vm| locate(&vm)).and_then(|target| {
            let checked = dialler.check_names(&target, &peer);
            checked.map(|()| target).map_err(|error| error.failure)
        });
        Ok(match verified {
            Ok(target) => {
                let connection = AgentConnection::new(transport, target, peer, authorities);
                AcceptedAgent::Verified(Box::new(connection))
            }
            Err(rejected) => AcceptedAgent::Unverified(Box::new(UnverifiedPeer {
                transport,
                key: peer.key,
                rejected,
                named,
            })),
        })
    }
}

/// The VM that a valid certificate names, or why it names none.
fn require_vm(names: &[String], trust_domain: &str, address: SocketAddr) -> Result<VmKey, Failure> {
    named_vm(names, trust_domain).ok_or_else(|| {
        let message = format_args!(
            "the certificate at {address} has the names {names:?}, but no spiffe://{trust_domain}/vmi/<namespace>/<name>/<uid>"
        );
        Failure::new(FailureClass::WrongVm, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_a_vm_of_this_fleet() {
        let address = "10.0.0.1:1".parse().unwrap();
        let vm = |name: &str| require_vm(&["x".to_owned(), name.to_owned()], "d", address);
        assert_eq!(vm("spiffe://d/vmi/ns/a/uid").unwrap().to_string(), "ns/a");
        for other in ["spiffe://e/vmi/ns/a/uid", "spiffe://d/collector", "y"] {
            assert_eq!(vm(other).unwrap_err().class, FailureClass::WrongVm, "{other}");
        }
    }
}
