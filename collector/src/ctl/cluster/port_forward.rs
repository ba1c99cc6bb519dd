//! Requests through a port-forward to a pod of the collector.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::{
    failure::{AttemptFailure, Attempted, failure},
    names::{API_PORT, COLLECTOR},
    port_forward_tls,
};
use crate::{
    api::REVISION_HEADER,
    ctl::{
        fail::Fail,
        transport::{ApiCall, MAX_RESPONSE_BYTES, RawResponse, retry_after},
    },
};

/// The port of the API, if the pod does not name it.
const DEFAULT_PORT: u16 = 10912;

/// The pods of the collector behind an API server.
pub(super) struct PortForward {
    pods: Api<Pod>,
    tls: Arc<ClientConfig>,
    /// Whether the certificate is verified. Then a failure is final: no other way verifies it.
    verifies: bool,
    /// Name in the collector's certificate.
    host: String,
    /// Which of the pods is used; another one after each answer of a standby.
    next: AtomicUsize,
}

impl PortForward {
    /// `cacert` has the authorities of the collector's certificate; without it the certificate is
    /// not verified.
    pub(super) fn new(client: Client, namespace: &str, cacert: Option<&Path>) -> Result<Self, Fail> {
        let tls = port_forward_tls::config(cacert.map(authorities).transpose()?);
        Ok(Self {
            pods: Api::namespaced(client, namespace),
            verifies: cacert.is_some(),
            tls: Arc::new(tls.map_err(|error| Fail::Start(error.to_string()))?),
            host: format!("{COLLECTOR}.{namespace}.svc"),
            next: AtomicUsize::new(0),
        })
    }

    /// Sends a request with a token for the collector. `fresh`: to another pod than before.
    pub(super) async fn send(&self, call: ApiCall<'_>, token: &str, fresh: bool) -> Attempted {
        let parameters = ListParams::default().labels(&format!("app.kubernetes.io/name={COLLECTOR}"));
        let pods = self
            .pods
            .list(&parameters)
            .await
            .map_err(|error| failure(&error))?;
        let ready: Vec<(String, u16)> = pods.items.iter().filter_map(ready_port).collect();
        let at = self.next.fetch_add(usize::from(fresh), Ordering::Relaxed) + usize::from(fresh);
        let Some((pod, port)) = ready.get(at.checked_rem(ready.len()).unwrap_or_default()) else {
            let message = format!("no pod with the label app.kubernetes.io/name={COLLECTOR} is ready");
            return Err(Ok(AttemptFailure(message)));
        };
        let mut forwarder = self
            .pods
            .portforward(pod, &[*port])
            .await
            .map_err(|error| failure(&error))?;
        let broken = |error: &dyn std::fmt::Display| {
            Ok(AttemptFailure(format!("port-forward to the pod {pod}: {error}")))
        };
        let Some(stream) = forwarder.take_stream(*port) else {
            return Err(broken(&"no stream"));
        };
        let error = forwarder.take_error(*port);
        let error = async {
            match error {
                Some(error) => error.await,
                None => None,
            }
        };
        let exchanged = tokio::select! {
            response = self.exchange(stream, call, token) => response.map_err(|error| {
                if self.verifies {
                    Err(Fail::Unreachable {
                        server: format!("pod {pod}"),
                        why: format!("port-forward: {error:#}"),
                    })
                } else {
                    broken(&format!("{error:#}"))
                }
            }),
            Some(error) = error => Err(broken(&error)),
        };
        forwarder.abort();
        exchanged
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        call: ApiCall<'_>,
        token: &str,
    ) -> anyhow::Result<RawResponse> {
        let name = ServerName::try_from(self.host.clone())?;
        let stream = TlsConnector::from(Arc::clone(&self.tls))
            .connect(name, stream)
            .await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = match call.body {
            None => Request::get(call.target),
            Some(_) => Request::post(call.target).header(header::CONTENT_TYPE, "application/json"),
        };
        let body = call
            .body
            .map_or_else(Bytes::new, |body| Bytes::from(body.to_owned()));
        let request = request
            .header(header::HOST, &self.host)
            .header(header::ACCEPT, call.accept)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Full::new(body))?;
        let exchange = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let limit = usize::try_from(MAX_RESPONSE_BYTES).unwrap_or(usize::MAX);
            let body = Limited::new(body, limit)
                .collect()
                .await
                .map_err(|error| anyhow::anyhow!(error))?;
            let revision = head.headers.get(REVISION_HEADER);
            Ok(RawResponse {
                status: head.status,
                revision: revision.and_then(|value| value.to_str().ok()?.parse().ok()),
                retry_after: retry_after(&head.headers),
                body: body.to_bytes().to_vec(),
            })
        };
        tokio::pin!(exchange, connection);
        tokio::select! {
            response = &mut exchange => response,
            // The connection also ends after the last byte of the response.
            ended = &mut connection => {
                ended?;
                exchange.await
            }
        }
    }
}

/// Name and API port of a pod that is ready.
fn ready_port(pod: &Pod) -> Option<(String, u16)> {
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let mut ready = conditions.filter(|one| one.type_ == "Ready" && one.status == "True");
    ready.next()?;
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let named = ports.find(|port| port.name.as_deref() == Some(API_PORT));
    let port = named.and_then(|port| u16::try_from(port.container_port).ok());
    Some((pod.metadata.name.clone()?, port.unwrap_or(DEFAULT_PORT)))
}

fn authorities(path: &Path) -> Result<RootCertStore, Fail> {
    let wrong = |error: &dyn std::fmt::Display| Fail::Usage(format!("--cacert {}: {error}", path.display()));
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        store.add(certificate).map_err(|error| wrong(&error))?;
    }
    if store.is_empty() {
        return Err(wrong(&"contains no certificate in PEM form"));
    }
    Ok(store)
}
