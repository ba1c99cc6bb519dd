//! A connection to an agent whose certificate was verified.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hyper::{Request, Response, StatusCode, body::Incoming};
use virtfleet_collector_core::{
    dial::DialTarget,
    pull_result::{Failure, FailureClass},
};
use virtfleet_runtime::tls::{ClientTls, VmIdentity};

use super::{
    peer::{PeerCertificate, PeerPolicy},
    transport::{AgentTransport, OpenError},
};

/// A connection for consecutive requests; dropping it closes it.
#[derive(Debug)]
pub(crate) struct AgentConnection {
    transport: AgentTransport,
    target: DialTarget,
    opened: Instant,
    peer: PeerCertificate,
}

/// Maximum age of a connection. Certificates are verified only when it is opened; one that has
/// expired or was signed by a removed authority must not stay accepted for as long as the guest
/// keeps the connection open.
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
    /// Connects to `target` and verifies its agent's certificate.
    pub(super) async fn open(
        &self,
        target: &DialTarget,
        connect_timeout: Duration,
    ) -> Result<AgentConnection, OpenError> {
        let config = self.tls.config(Instant::now()).ok_or_else(|| {
            let message = "this collector has no certificate yet; its log has the reason".to_owned();
            fail(FailureClass::Tls, message)
        })?;
        let (transport, certificate) = AgentTransport::open(target, connect_timeout, config).await?;
        let peer = certificate.as_ref().and_then(PeerCertificate::of);
        let peer = peer.ok_or_else(|| {
            let message = format!("the certificate at {} cannot be parsed", target.address);
            fail(FailureClass::Tls, message)
        })?;
        check_identity(target, &self.trust_domain, &peer.names).map_err(|failure| OpenError {
            failure,
            rejected_certificate: true,
        })?;
        self.check(target, &peer)?;
        Ok(AgentConnection {
            transport,
            target: target.clone(),
            opened: Instant::now(),
            peer,
        })
    }

    /// Whether a connection that was opened earlier may still be used.
    pub(super) fn may_use(&self, connection: &AgentConnection) -> bool {
        connection.transport.is_open() && self.check(&connection.target, &connection.peer).is_ok()
    }

    fn check(&self, target: &DialTarget, peer: &PeerCertificate) -> Result<(), OpenError> {
        self.policy
            .as_ref()
            .map_or(Ok(()), |policy| policy.check(target, peer))
    }
}

impl AgentConnection {
    /// Whether the connection belongs to `target` and may still be used: a migrated or recreated VM
    /// is dialled and verified again.
    pub(super) fn is_for(&self, target: &DialTarget, now: Instant) -> bool {
        self.target == *target && is_fresh(self.opened, now)
    }

    /// The agent's certificate.
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
            key: virtfleet_wire::ids::VmKey {
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
