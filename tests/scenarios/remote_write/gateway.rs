//! The MLA gateway of a KKP user cluster in front of a receiver that records.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper::header::HeaderValue;
use rustls::ClientConfig;
use virtfleet_collector::mla::send::{Endpoint, SendFailure, SendRefusal, SendResult};
use virtfleet_remote_write::{Protocol, RefusedReason};
use virtfleet_tests::{
    pki::Authority,
    ports,
    remote_write::{MlaGateway, Recorder, Reply},
    skip,
};

use super::{Sending, endpoint, one};

const TIER: u8 = 3;

fn start(upstream: SocketAddr) -> MlaGateway {
    MlaGateway::start("cluster-a", upstream).unwrap()
}

/// An endpoint at the gateway that claims to be another tenant's.
fn at_path(gateway: &MlaGateway, path: &str, tls: Arc<ClientConfig>) -> Endpoint {
    let mut endpoint = endpoint(&format!("https://{}{path}", gateway.address));
    endpoint.tls = Some(tls);
    endpoint.server_name = Some(gateway.host.clone());
    endpoint
        .headers
        .insert("x-scope-orgid", HeaderValue::from_static("cluster-b"));
    endpoint
}

/// A client of the gateway with a certificate of `authority`.
fn client(gateway: &MlaGateway, authority: &Authority) -> Arc<ClientConfig> {
    let identity = authority.collector().unwrap();
    gateway.authority.client_config(&identity).unwrap()
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
    let gateway = start(recorder.address());
    let tls = client(&gateway, &gateway.authority);
    let sending = Sending::to(at_path(&gateway, "/api/v1/push", tls));
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
    let gateway = start(recorder.address());
    let refused = |outcome: &SendResult| match outcome {
        SendResult::Refused { reason, .. } => *reason,
        other => panic!("{other:?}"),
    };
    let retried = |outcome: &SendResult| match outcome {
        SendResult::Retry { reason, message, .. } => (*reason, message.clone()),
        other => panic!("{other:?}"),
    };

    // nginx answers 400 over TLS that works.
    let stranger = client(&gateway, &Authority::new("another").unwrap());
    let anonymous = gateway.authority.anonymous_client_config().unwrap();
    for tls in [stranger, anonymous] {
        let outcome = Sending::to(at_path(&gateway, "/api/v1/push", tls)).send(&one(1.0));
        let reason = SendRefusal::Answer(RefusedReason::Invalid);
        assert_eq!(refused(&outcome.result), reason, "{outcome:?}");
    }
    let tls = client(&gateway, &gateway.authority);
    for path in ["/api/v1/push/", "/otlp/v1/metrics", "/"] {
        let outcome = Sending::to(at_path(&gateway, path, Arc::clone(&tls))).send(&one(1.0));
        assert_eq!(
            refused(&outcome.result),
            SendRefusal::Answer(RefusedReason::NotFound)
        );
    }

    // A server that is not the gateway gets nothing.
    let mut renamed = at_path(&gateway, "/api/v1/push", Arc::clone(&tls));
    renamed.server_name = Some("mla-gateway.cluster-b.example".to_owned());
    let outcome = Sending::to(renamed).send(&one(1.0));
    // docs/mla.md quotes both messages.
    let (reason, message) = retried(&outcome.result);
    assert_eq!(reason, SendFailure::Tls, "{outcome:?}");
    let expected = "invalid peer certificate: certificate not valid for name ";
    assert!(message.starts_with(expected), "{message}");
    let other = Authority::new("another").unwrap();
    let untrusted = other.client_config(&other.collector().unwrap()).unwrap();
    let outcome = Sending::to(at_path(&gateway, "/api/v1/push", untrusted)).send(&one(1.0));
    let expected = "invalid peer certificate: UnknownIssuer".to_owned();
    assert_eq!(retried(&outcome.result), (SendFailure::Tls, expected));
    assert!(recorder.recorded().is_empty());
}

#[test]
fn tier3_the_gateway_without_its_backend_keeps_the_request() {
    let test = "tier3_the_gateway_without_its_backend_keeps_the_request";
    if skip::need(TIER, test, skip::program("nginx")).unwrap().is_none() {
        return;
    }
    let upstream = ports::free().unwrap();
    let gateway = start(upstream);
    let tls = client(&gateway, &gateway.authority);
    let mut endpoint = at_path(&gateway, "/api/v1/push", tls);
    endpoint.timeout = Duration::from_secs(20);
    let outcome = Sending::to(endpoint).send(&one(1.0));
    assert!(
        matches!(outcome.result, SendResult::Retry { .. }) && outcome.status == Some(502),
        "{outcome:?}"
    );
}
