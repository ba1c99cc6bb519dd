//! A connection to an agent: TCP, TLS 1.3 and verification of the agent's certificate.

use std::{
    error::Error,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{Request, Response, StatusCode, body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use rustls::{AlertDescription, pki_types::ServerName};
use tokio::task::JoinHandle;
use virtfleet_collector_core::{
    dial::DialTarget,
    pull_result::{Failure, FailureClass},
};
use virtfleet_runtime::tls::{AGENT_DNS_NAME, ClientTls, VmIdentity, peer_names};

use super::{
    meter::{Meter, Metered},
    way,
};

/// A connection for consecutive requests; dropping it closes it.
#[derive(Debug)]
pub(super) struct AgentConnection {
    sender: http1::SendRequest<Empty<Bytes>>,
    driver: JoinHandle<()>,
    /// Why the connection ended, if hyper reported that to the driver and not to the request.
    ended: Arc<OnceLock<hyper::Error>>,
    target: DialTarget,
    opened: Instant,
    meter: Meter,
}

/// Maximum age of a connection. Certificates are verified only when it is opened; one that was
/// revoked, has expired or was signed by a removed authority must not stay accepted for as long as
/// the guest keeps the connection open.
const MAX_AGE: Duration = Duration::from_mins(10);

fn is_fresh(opened: Instant, now: Instant) -> bool {
    now.saturating_duration_since(opened) < MAX_AGE
}

impl Drop for AgentConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn fail(class: FailureClass, message: String) -> Failure {
    Failure::new(class, message)
}

impl AgentConnection {
    /// Connects to `target` and verifies its agent's certificate.
    pub(super) async fn open(
        target: &DialTarget,
        tls: &ClientTls,
        trust_domain: &str,
    ) -> Result<Self, Failure> {
        let address = target.address;
        let stream = way::connect(target).await?;
        drop(stream.set_nodelay(true));
        let meter = Meter::default();
        meter.start_exchange(0);
        let stream = Metered::new(stream, meter.clone());
        let name = ServerName::try_from(AGENT_DNS_NAME)
            .map_err(|error| fail(FailureClass::Tls, error.to_string()))?;
        let config = tls.config(Instant::now()).ok_or_else(|| {
            let message = "this collector has no certificate yet; its log has the reason".to_owned();
            fail(FailureClass::Tls, message)
        })?;
        let connector = tokio_rustls::TlsConnector::from(config);
        let stream = connector.connect(name, stream).await.map_err(|error| {
            fail(
                FailureClass::Tls,
                format!("TLS handshake with {address} failed: {error}"),
            )
        })?;
        let names = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(<[_]>::first)
            .map(peer_names)
            .unwrap_or_default();
        check_identity(target, trust_domain, &names)?;
        let (sender, connection) = http1::Builder::new()
            // hyper's buffer grows up to this size and stays allocated with the connection, for
            // every guest.
            .max_buf_size(16 * 1024)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| {
                fail(
                    FailureClass::Connect,
                    format!("HTTP with {address} failed: {error}"),
                )
            })?;
        let ended = Arc::new(OnceLock::new());
        let why = Arc::clone(&ended);
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, %address, "connection ended");
                why.get_or_init(|| error);
            }
        });
        Ok(Self {
            sender,
            driver,
            ended,
            target: target.clone(),
            opened: Instant::now(),
            meter,
        })
    }

    /// Whether the agent has not closed the connection yet.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Whether the connection belongs to `target` and may still be used: a migrated or recreated VM
    /// is dialled and verified again.
    pub(super) fn is_for(&self, target: &DialTarget, now: Instant) -> bool {
        self.target == *target && is_fresh(self.opened, now)
    }

    /// The failure if the peer sent more bytes than an exchange may have; it then explains all
    /// other failures.
    pub(super) fn over_budget(&self, path: &str) -> Option<Failure> {
        self.meter.is_spent().then(|| {
            let message = format!(
                "the answer to {path} exceeds the maximum size including headers; the rest was not read"
            );
            fail(FailureClass::TooLarge, message)
        })
    }

    /// Sends a request for `path` and waits for the response head, which must have status 200. The
    /// whole response may have `body` bytes plus some overhead.
    pub(super) async fn get(&mut self, path: &str, body: usize) -> Result<Response<Incoming>, Failure> {
        self.meter.start_exchange(body);
        if let Err(error) = self.sender.ready().await {
            return Err(self.lost(path, Some(&error)));
        }
        let request = Request::get(path)
            .header(header::HOST, AGENT_DNS_NAME)
            .header(
                header::USER_AGENT,
                concat!("virtfleet-collector/", env!("CARGO_PKG_VERSION")),
            )
            .body(Empty::new())
            .map_err(|error| fail(FailureClass::Http, error.to_string()))?;
        let response = match self.response(request).await {
            Ok(response) => response,
            Err(error) => return Err(self.lost(path, error.as_ref())),
        };
        match response.status() {
            StatusCode::OK => Ok(response),
            status => Err(fail(FailureClass::Http, format!("{path} answered {status}"))),
        }
    }
}

impl AgentConnection {
    /// Sends a request and waits for the response head or the end of the connection. With hyper
    /// 1.12 alone, a request sometimes never ends if its connection is closed while it is being
    /// sent.
    async fn response(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, Option<hyper::Error>> {
        let mut answer = pin!(self.sender.send_request(request));
        tokio::select! {
            biased;
            answer = &mut answer => return answer.map_err(Some),
            _ = &mut self.driver => {}
        }
        // The response may have arrived between the two checks.
        match tokio::time::timeout(Duration::ZERO, answer).await {
            Ok(answer) => answer.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// Why there was no response. A TLS 1.3 client learns only here that the server rejects its
    /// certificate: its own side of the handshake has already finished (RFC 8446, 4.4.2.4 and E.1).
    fn lost(&self, path: &str, error: Option<&hyper::Error>) -> Failure {
        if let Some(failure) = self.over_budget(path) {
            return failure;
        }
        let mut errors = error.into_iter().chain(self.ended.get());
        if let Some(alert) = errors.clone().find_map(alert) {
            return refused(self.target.address, alert);
        }
        if errors.clone().any(hyper::Error::is_parse_too_large) {
            let message =
                format!("the answer to {path} exceeds the maximum size of headers; the rest was not read");
            return fail(FailureClass::TooLarge, message);
        }
        let error = errors
            .next()
            .map_or_else(|| "the connection was closed".to_owned(), ToString::to_string);
        let message = format!("the agent closed the connection before it answered {path}: {error}");
        fail(FailureClass::Connect, message)
    }
}

/// The TLS alert with which the peer ended the connection, if any.
fn alert(error: &hyper::Error) -> Option<AlertDescription> {
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(rustls::Error::AlertReceived(alert)) = inner.and_then(|inner| inner.downcast_ref()) {
            return Some(*alert);
        }
        cause = error.source();
    }
    None
}

fn refused(address: SocketAddr, alert: AlertDescription) -> Failure {
    let message = match alert {
        AlertDescription::CertificateExpired => format!(
            "the agent at {address} rejects this collector's certificate as not valid by the guest's clock; is that \
             clock right (in the guest: timedatectl), and is the collector's certificate still valid?"
        ),
        _ => format!(
            "the agent at {address} ended TLS with {alert:?}; its log has the reason (in the guest: journalctl -u virtfleet-agent)"
        ),
    };
    fail(FailureClass::Tls, message)
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
pub(super) type SharedTls = Arc<ClientTls>;

#[cfg(test)]
mod tests {
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
