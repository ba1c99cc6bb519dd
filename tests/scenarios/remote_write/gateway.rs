//! nginx set up as the MLA gateway of a KKP user cluster is: TLS 1.3, a mandatory client
//! certificate, the tenant's header set by the gateway, one exact location.

use std::{fs, net::SocketAddr, sync::Arc, time::Duration};

use hyper::header::HeaderValue;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::ClientConfig;
use virtfleet_collector::mla::send::{Endpoint, SendFailure, SendRefusal, SendResult};
use virtfleet_remote_write::{Protocol, RefusedReason};
use virtfleet_tests::{
    pki::{Authority, TRUST_DOMAIN},
    ports,
    process::{Launch, Process},
    remote_write::{Recorder, Reply},
    skip,
    stage::STAGE_TIMEOUT,
};

use super::{Sending, endpoint, one};

const TIER: u8 = 3;
const HOST: &str = "mla-gateway.cluster-a.example";

struct Gateway {
    _process: Process,
    _folder: tempfile::TempDir,
    address: SocketAddr,
    authority: Authority,
}

impl Gateway {
    fn start(upstream: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let authority = Authority::new("mla-gateway-ca").unwrap();
        let uri = format!("spiffe://{TRUST_DOMAIN}/mla-gateway");
        let server = authority
            .issue("mla-gateway", &uri, &[HOST], ExtendedKeyUsagePurpose::ServerAuth)
            .unwrap();
        fs::write(path.join("ca.pem"), authority.pem()).unwrap();
        fs::write(path.join("tls.crt"), server.certificate_pem()).unwrap();
        fs::write(path.join("tls.key"), server.key_pem()).unwrap();
        let address = ports::free().unwrap();
        let own = path.display();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; pid {own}/nginx.pid; error_log stderr warn;
             events {{ worker_connections 64; }}
             http {{
               access_log off;
               client_body_temp_path {own}/body; proxy_temp_path {own}/proxy; fastcgi_temp_path {own}/f;
               uwsgi_temp_path {own}/u; scgi_temp_path {own}/s;
               server {{
                 listen {address} ssl;
                 ssl_protocols TLSv1.3;
                 ssl_certificate {own}/tls.crt; ssl_certificate_key {own}/tls.key;
                 ssl_client_certificate {own}/ca.pem; ssl_verify_client on;
                 proxy_set_header X-Scope-OrgID cluster-a;
                 location = /api/v1/push {{ proxy_pass http://{upstream}/api/v1/push; }}
                 location / {{ return 404; }}
               }}
             }}\n"
        );
        let file = path.join("nginx.conf");
        fs::write(&file, config).unwrap();
        let mut process = Launch::new("nginx")
            .arg("-p")
            .arg(path)
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg("stderr")
            .start(path)
            .unwrap();
        process.wait_for_port(address, STAGE_TIMEOUT).unwrap();
        Self {
            _process: process,
            _folder: folder,
            address,
            authority,
        }
    }

    fn endpoint(&self, path: &str, tls: Arc<ClientConfig>) -> Endpoint {
        let mut endpoint = endpoint(&format!("https://{}{path}", self.address));
        endpoint.tls = Some(tls);
        endpoint.server_name = Some(HOST.to_owned());
        endpoint
            .headers
            .insert("x-scope-orgid", HeaderValue::from_static("cluster-b"));
        endpoint
    }

    fn client(&self, authority: &Authority) -> Arc<ClientConfig> {
        let identity = authority.collector().unwrap();
        self.authority.client_config(&identity).unwrap()
    }
}

fn recorder() -> Recorder {
    Recorder::start(|_, request| {
        let samples = request.v2().map_or(0, |request| request.timeseries.len());
        Some(Reply::status(200).written(samples as u64))
    })
    .unwrap()
}

#[test]
fn tier3_the_gateway_takes_the_certificate_and_names_the_tenant() {
    let test = "tier3_the_gateway_takes_the_certificate_and_names_the_tenant";
    if skip::need(TIER, test, skip::program("nginx")).unwrap().is_none() {
        return;
    }
    let recorder = recorder();
    let gateway = Gateway::start(recorder.address());
    let tls = gateway.client(&gateway.authority);
    let sending = Sending::to(gateway.endpoint("/api/v1/push", tls));
    for _ in 0..3 {
        let outcome = sending.send(&one(1.0));
        let delivered = SendResult::Delivered {
            written: Some(1),
            missing: 0,
        };
        assert_eq!(outcome.result, delivered);
        assert_eq!(
            outcome.form.protocol,
            Protocol::V2,
            "nginx passes the headers of 2.0"
        );
    }
    let sent = recorder.last().unwrap();
    let tenants: Vec<_> = sent.headers.get_all("x-scope-orgid").iter().collect();
    assert_eq!(tenants, ["cluster-a"], "a client cannot name another tenant");
    assert_eq!(sent.path, "/api/v1/push");
}

#[test]
fn tier3_the_gateway_refuses_other_certificates_and_other_paths() {
    let test = "tier3_the_gateway_refuses_other_certificates_and_other_paths";
    if skip::need(TIER, test, skip::program("nginx")).unwrap().is_none() {
        return;
    }
    let recorder = recorder();
    let gateway = Gateway::start(recorder.address());
    let refused = |outcome: &SendResult| match outcome {
        SendResult::Refused { reason, .. } => *reason,
        other => panic!("{other:?}"),
    };
    let retried = |outcome: &SendResult| match outcome {
        SendResult::Retry { reason, .. } => *reason,
        other => panic!("{other:?}"),
    };

    // nginx answers 400 over TLS that works.
    let stranger = gateway.client(&Authority::new("another").unwrap());
    let anonymous = gateway.authority.anonymous_client_config().unwrap();
    for tls in [stranger, anonymous] {
        let outcome = Sending::to(gateway.endpoint("/api/v1/push", tls)).send(&one(1.0));
        let reason = SendRefusal::Answer(RefusedReason::Invalid);
        assert_eq!(refused(&outcome.result), reason, "{outcome:?}");
    }
    let tls = gateway.client(&gateway.authority);
    for path in ["/api/v1/push/", "/otlp/v1/metrics", "/"] {
        let outcome = Sending::to(gateway.endpoint(path, Arc::clone(&tls))).send(&one(1.0));
        assert_eq!(
            refused(&outcome.result),
            SendRefusal::Answer(RefusedReason::NotFound)
        );
    }

    // A server that is not the gateway gets nothing.
    let mut renamed = gateway.endpoint("/api/v1/push", Arc::clone(&tls));
    renamed.server_name = Some("mla-gateway.cluster-b.example".to_owned());
    let outcome = Sending::to(renamed).send(&one(1.0));
    assert_eq!(retried(&outcome.result), SendFailure::Tls, "{outcome:?}");
    let other = Authority::new("another").unwrap();
    let untrusted = other.client_config(&other.collector().unwrap()).unwrap();
    let outcome = Sending::to(gateway.endpoint("/api/v1/push", untrusted)).send(&one(1.0));
    assert_eq!(retried(&outcome.result), SendFailure::Tls, "{outcome:?}");
    assert!(recorder.recorded().is_empty());
}

#[test]
fn tier3_the_gateway_without_its_backend_keeps_the_request() {
    let test = "tier3_the_gateway_without_its_backend_keeps_the_request";
    if skip::need(TIER, test, skip::program("nginx")).unwrap().is_none() {
        return;
    }
    let upstream = ports::free().unwrap();
    let gateway = Gateway::start(upstream);
    let tls = gateway.client(&gateway.authority);
    let mut endpoint = gateway.endpoint("/api/v1/push", tls);
    endpoint.timeout = Duration::from_secs(20);
    let outcome = Sending::to(endpoint).send(&one(1.0));
    assert!(
        matches!(outcome.result, SendResult::Retry { .. }) && outcome.status == Some(502),
        "{outcome:?}"
    );
}
