use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus_client::registry::Registry;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use virtfleet_runtime::tls::{ClientTls, TlsAcceptor, peer_names};

use super::{
    super::{api_certificate::ApiCertificate, own_certificate::*},
    *,
};

#[test]
fn agents_accept_the_collector_for_its_lifetime() {
    let old = authorities();
    let new = old.rotate(RootKind::Clients, NOW).unwrap();
    let (issued, not_after) = issue(&new, "example.org", DAY, NOW).unwrap();
    for roots in [
        old.client_roots_pem(),
        new.roots(RootKind::Clients)[0].pem.clone(),
    ] {
        for (now, accepted) in [
            (NOW - 3601, false),
            (NOW - 3600, true),
            (NOW + DAY, true),
            (NOW + DAY + 1, false),
        ] {
            let checked = check_chain(
                issued.certificate.as_bytes(),
                roots.as_bytes(),
                Usage::Client,
                now,
            );
            // The new root is valid from an hour before its creation as well.
            assert_eq!(checked.is_ok(), accepted, "{now}: {checked:?}");
        }
    }
    let leaf = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    assert_eq!(peer_names(&leaf), ["spiffe://example.org/collector"]);
    assert_eq!(issued.authorities, new.agent_roots_pem());
    assert_eq!(not_after, NOW + DAY);
}

#[test]
fn an_expired_root_issues_nothing() {
    let authorities = authorities();
    let end = authorities.roots(RootKind::Clients)[0].validity.not_after;
    let (_, not_after) = issue(&authorities, "example.org", DAY, end - 3600).unwrap();
    assert_eq!(not_after, end, "not after the root's end");
    let error = issue(&authorities, "example.org", DAY, end + 3600).unwrap_err();
    assert!(matches!(error, CaError::Expired { .. }), "{error}");
}

fn text(registry: &Registry) -> String {
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, registry).unwrap();
    page
}

/// Alerts compare the life of a certificate with what is left of it.
fn shows(registry: &Registry, certificate: &str, issued: UnixSeconds, not_after: UnixSeconds) {
    let page = text(registry);
    for (what, at) in [("issued", issued), ("expiry", not_after)] {
        let line = format!("ca_certificate_{what}_timestamp_seconds{{certificate=\"{certificate}\"}} {at}\n");
        assert!(page.contains(&line), "{line}{page}");
    }
}

static CLOCK: AtomicU64 = AtomicU64::new(NOW);

/// The certificate changes at two thirds of its lifetime, with the authority, and when the clock
/// was set back. That of the API changes with it.
#[tokio::test(start_paused = true)]
async fn the_certificate_is_renewed() {
    let authorities = authorities();
    let names = vec!["virtfleet-collector.virtfleet.svc".to_owned()];
    let api = ApiCertificate::new(names, &authorities, "example.org", DAY, NOW).unwrap();
    let served = TlsAcceptor::issued(api.identity()).unwrap();
    let (publish, authorities) = watch::channel(Arc::new(authorities));
    let tls = Arc::new(ClientTls::in_memory());
    let mut registry = Registry::default();
    let mut own = OwnCertificate {
        tls: Arc::clone(&tls),
        authorities,
        trust_domain: "example.org".to_owned(),
        lifetime: DAY,
        clock: || CLOCK.load(Ordering::Relaxed),
        metrics: CaMetrics::register(&mut registry),
        api: Some(api),
    };
    let of_api = || served.config(std::time::Instant::now());
    let first_of_api = of_api();
    let renew_at = own.renew_own().unwrap();
    assert_eq!(renew_at, NOW + 2 * DAY / 3);
    assert!(
        Arc::ptr_eq(&first_of_api, &of_api()),
        "at the start it is issued once"
    );
    shows(&registry, "collector", NOW, NOW + DAY);
    assert!(text(&registry).contains("{certificate=\"agents\"}"));
    let stop = CancellationToken::new();
    let task = tokio::spawn(own.run(renew_at, stop.clone()));
    let config = || tls.config(std::time::Instant::now()).unwrap();
    let first = config();
    let a_minute = std::time::Duration::from_mins(1);

    CLOCK.store(NOW + 2 * DAY / 3 - 1, Ordering::Relaxed);
    tokio::time::sleep(a_minute).await;
    assert!(Arc::ptr_eq(&first, &config()), "before two thirds");
    assert!(Arc::ptr_eq(&first_of_api, &of_api()), "before two thirds");
    CLOCK.store(NOW + 2 * DAY / 3, Ordering::Relaxed);
    tokio::time::sleep(a_minute).await;
    let second = config();
    assert!(!Arc::ptr_eq(&first, &second), "at two thirds");
    assert!(!Arc::ptr_eq(&first_of_api, &of_api()), "with it");
    for certificate in ["collector", "api"] {
        let issued = NOW + 2 * DAY / 3;
        shows(&registry, certificate, issued, issued + DAY);
    }

    let rotated = publish.borrow().rotate(RootKind::Agents, NOW).unwrap();
    publish.send_replace(Arc::new(rotated));
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    let third = config();
    assert!(!Arc::ptr_eq(&second, &third), "with the authority");

    CLOCK.store(NOW - 10 * DAY, Ordering::Relaxed);
    tokio::time::sleep(a_minute).await;
    assert!(Arc::ptr_eq(&third, &config()), "the root is not valid yet");
    CLOCK.store(NOW - 1000, Ordering::Relaxed);
    tokio::time::sleep(a_minute).await;
    assert!(!Arc::ptr_eq(&third, &config()), "after the clock was set back");
    stop.cancel();
    task.await.unwrap();
}
