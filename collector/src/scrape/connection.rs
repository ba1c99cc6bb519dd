//! A connection to an agent whose certificate was verified.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hyper::{Request, Response, StatusCode, body::Incoming};
use rustls::pki_types::CertificateDer;
use tokio::task::AbortHandle;
use virtfleet_collector_core::{
    dial::DialTarget,
    pull_result::{Failure, FailureClass, FailurePoint},
};
use virtfleet_runtime::tls::{AuthoritiesId, ClientTls, VmIdentity};
use virtfleet_wire::ids::VmKey;

use super::{
    peer::{PeerCertificate, PeerPolicy},
    transport::{AgentTransport, OpenError},
};
use crate::{clock::unix_seconds, slots::CountedSlot};

/// A connection for consecutive requests; dropping it closes it.
#[derive(Debug)]
pub(crate) struct AgentConnection {
    transport: AgentTransport,
    target: DialTarget,
    opened: Instant,
    peer: PeerCertificate,
    /// The authorities with which its certificate was verified.
    authorities: Option<AuthoritiesId>,
    /// Of a connection that the agent opened.
    _slot: Option<CountedSlot>,
}

/// Maximum age of a connection. The names of its certificate are compared only when it is opened.
const MAX_AGE: Duration = Duration::from_mins(10);

fn is_fresh(opened: Instant, now: Instant) -> bool {
    now.saturating_duration_since(opened) < MAX_AGE
}

fn fail(class: FailureClass, message: String) -> Failure {
    Failure::new(class, message)
}

/// How agents are dialled and verified.
#[derive(Debug, Clone)]
pub(super) struct AgentDialler {
    pub(super) tls: SharedTls,
    pub(super) trust_domain: Arc<str>,
    /// None: every certificate that fits the VM is used.
    pub(super) policy: Option<Arc<dyn PeerPolicy>>,
}

impl AgentDialler {
    /// Connects to `target` and verifies its agent's certificate. `awaited` as in
    /// [`AgentTransport::open`].
    pub(super) async fn open(
        &self,
        target: &DialTarget,
        connect_timeout: Duration,
        awaited: &mut Option<FailurePoint>,
    ) -> Result<AgentConnection, OpenError> {
        let now = Instant::now();
        // Before the configuration, so that a later one counts as a change.
        let authorities = self.tls.authorities(now);
        let config = self.tls.config(now).ok_or_else(|| {
            let message = "this collector has no certificate yet; its log has the reason".to_owned();
            fail(FailureClass::Tls, message)
        })?;
        let (transport, chain) = AgentTransport::open(target, connect_timeout, config, awaited).await?;
        let peer = parse_peer(&chain, target.address)?;
        self.check_names(target, &peer)?;
        Ok(AgentConnection::new(transport, target.clone(), peer, authorities))
    }

    /// Checks that a valid certificate is that of `target`, and is used.
    pub(super) fn check_names(&self, target: &DialTarget, peer: &PeerCertificate) -> Result<(), OpenError> {
        check_identity(target, &self.trust_domain, &peer.names).map_err(|failure| OpenError {
            failure,
            // Whoever forwards a port of its VM to the agent of another one must not get that
            // agent's key certified, nor have it replaced.
            rejected_certificate: named_vm(&peer.names, &self.trust_domain)
                .is_none_or(|named| named == target.key),
        })?;
        self.check(target, peer)
    }

    /// Whether the certificate of an open connection is still used: it has not expired, the
    /// authorities with which it was verified are still trusted, and it was not revoked.
    pub(super) fn check_connection(&self, connection: &AgentConnection) -> Result<(), OpenError> {
        let address = connection.target.address;
        let ended = |why: &str| {
            let message = format!("the connection with {address} was closed: {why}");
            Err(fail(FailureClass::Tls, message).into())
        };
        if unix_seconds() > connection.peer.life.not_after {
            return ended("the agent's certificate has expired");
        }
        if self.tls.authorities(Instant::now()) != connection.authorities {
            return ended("an authority is no longer trusted; the agent is verified on a new connection");
        }
        self.check(&connection.target, &connection.peer)
    }

    /// Whether a connection that was opened earlier may still be used.
    pub(super) fn may_use(&self, connection: &AgentConnection) -> bool {
        connection.transport.is_open() && self.check_connection(connection).is_ok()
    }

    fn check(&self, target: &DialTarget, peer: &PeerCertificate) -> Result<(), OpenError> {
        self.policy
            .as_ref()
            .map_or(Ok(()), |policy| policy.check(target, peer))
    }
}

/// The peer's own certificate, parsed: the first of the chain.
pub(crate) fn parse_peer(
    chain: &[CertificateDer<'_>],
    address: SocketAddr,
) -> Result<PeerCertificate, Failure> {
    chain.first().and_then(PeerCertificate::of).ok_or_else(|| {
        let message = format!("the certificate at {address} cannot be parsed");
        fail(FailureClass::Tls, message)
    })
}

impl AgentConnection {
    /// A connection to `target`, whose certificate `peer` was verified just now.
    pub(super) fn new(
        transport: AgentTransport,
        target: DialTarget,
        peer: PeerCertificate,
        authorities: Option<AuthoritiesId>,
    ) -> Self {
        Self {
            transport,
            target,
            opened: Instant::now(),
            peer,
            authorities,
            _slot: None,
        }
    }

    /// The same, which occupies a slot until it is closed.
    pub(super) fn in_slot(self, slot: CountedSlot) -> Self {
        Self {
            _slot: Some(slot),
            ..self
        }
    }

    /// What is dialled, or where the agent connected from.
    pub(crate) fn target(&self) -> &DialTarget {
        &self.target
    }

    /// Closes the connection, and tells whether it is closed.
    pub(super) fn closer(&self) -> AbortHandle {
        self.transport.closer()
    }

    /// Whether the connection belongs to `target` and may still be used: a migrated or recreated VM
    /// is dialled and verified again.
    pub(super) fn is_for(&self, target: &DialTarget, now: Instant) -> bool {
        self.target == *target && is_fresh(self.opened, now)
    }

    pub(crate) fn peer(&self) -> &PeerCertificate {
        &self.peer
    }

    /// The connection below, for renewals.
    pub(crate) fn transport(&mut self) -> &mut AgentTransport {
        &mut self.transport
    }

    /// See [`AgentTransport::over_budget`].
    pub(super) fn over_budget(&self, path: &str) -> Option<Failure> {
        self.transport.over_budget(path)
    }

    /// Sends a request for `path` and waits for the response head, which must have status 200. The
    /// whole response may have `body` bytes plus some overhead.
    pub(super) async fn get(&mut self, path: &str, body: usize) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder();
        let response = self.transport.send(request, path, Bytes::new(), body).await?;
        match response.status() {
            StatusCode::OK => Ok(response),
            status => Err(fail(FailureClass::Http, format!("{path} answered {status}"))),
        }
    }
}

/// The VM of this fleet that a valid certificate names.
pub(super) fn named_vm(names: &[String], trust_domain: &str) -> Option<VmKey> {
    let identity = names.iter().find_map(|name| VmIdentity::from_uri(name))?;
    (identity.trust_domain == trust_domain).then_some(VmKey {
        namespace: identity.namespace,
        name: identity.name,
    })
}

/// Checks that the certificate identifies the dialled VM with its present UID (decision 9: only the
/// dial target and the certificate identify a VM).
fn check_identity(target: &DialTarget, trust_domain: &str, names: &[String]) -> Result<(), Failure> {
    let wrong = |message: String| Err(fail(FailureClass::WrongVm, message));
    let Some(identity) = names.iter().find_map(|name| VmIdentity::from_uri(name)) else {
        return wrong(format!(
            "the certificate at {} has the names {names:?}, but no spiffe://{trust_domain}/vmi/<namespace>/<name>/<uid>",
            target.address
        ));
    };
    let key = &target.key;
    if identity.trust_domain != trust_domain
        || identity.namespace != key.namespace
        || identity.name != key.name
    {
        return wrong(format!(
            "the certificate at {} is for spiffe://{}/vmi/{}/{}, not for spiffe://{trust_domain}/vmi/{}/{}",
            target.address, identity.trust_domain, identity.namespace, identity.name, key.namespace, key.name
        ));
    }
    if !target.accepts(&identity.uid) {
        let uids: Vec<_> = target.uids().map(ToString::to_string).collect();
        return wrong(format!(
            "the certificate at {} is for UID {} of {key}, an earlier VMI of that name; the inventory has {}",
            target.address,
            identity.uid,
            uids.join(" and ")
        ));
    }
    Ok(())
}

/// TLS configuration of all pulls.
pub(crate) type SharedTls = Arc<ClientTls>;

#[cfg(test)]
mod tests {
    use virtfleet_runtime::tls::AGENT_DNS_NAME;

    use super::*;

    #[test]
    fn connections_have_a_maximum_age() {
        let opened = Instant::now();
        assert!(is_fresh(opened, opened + MAX_AGE / 2));
        assert!(!is_fresh(opened, opened + MAX_AGE));
    }

    #[test]
    fn only_the_dialled_vm_with_its_uid_is_accepted() {
        let target = DialTarget {
            key: VmKey {
                namespace: "cluster-a".parse().unwrap(),
                name: "worker-0".parse().unwrap(),
            },
            uid: Some("vmi-uid".parse().unwrap()),
            vm_uid: Some("vm-uid".parse().unwrap()),
            address: "10.0.0.1:10911".parse().unwrap(),
            way: virtfleet_collector_core::way::AgentWay::Direct,
        };
        let check = |uri: &str| check_identity(&target, "d", &[AGENT_DNS_NAME.to_owned(), uri.to_owned()]);
        check("spiffe://d/vmi/cluster-a/worker-0/vmi-uid").unwrap();
        check("spiffe://d/vmi/cluster-a/worker-0/vm-uid").unwrap();
        for other in [
            "spiffe://d/vmi/cluster-a/worker-0/older",
            "spiffe://d/vmi/cluster-a/worker-1/vmi-uid",
            "spiffe://d/vmi/cluster-b/worker-0/vmi-uid",
            "spiffe://e/vmi/cluster-a/worker-0/vmi-uid",
            "spiffe://d/collector",
        ] {
            assert_eq!(check(other).unwrap_err().class, FailureClass::WrongVm, "{other}");
        }
    }
}
