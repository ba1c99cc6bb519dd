//! Validation of the settings of the port on which agents connect.

use std::net::SocketAddr;

use virtfleet_wire::settings::Span;

use super::CollectorConfig;

/// Reports the problems of `ingest`.
pub(super) fn check(config: &CollectorConfig, report: &mut impl FnMut(&str, String)) {
    let Some(ingest) = &config.ingest else {
        return;
    };
    if !config.pulls_agents() {
        let message = "has no effect without enrolment or scrape.tls: this collector pulls no agents";
        report("ingest", message.to_owned());
    }
    let address = &ingest.address;
    let own = [
        ("server.address", Some(&config.server.address)),
        ("server.probeAddress", config.server.probe_address.as_ref()),
    ];
    match address.parse::<SocketAddr>() {
        Err(_) => report(
            "ingest.address",
            format!("{address:?} is not an address and port such as 0.0.0.0:10913 or [::]:10913"),
        ),
        Ok(parsed) if parsed.port() != 0 => {
            for (key, _) in own.iter().filter(|(_, other)| *other == Some(address)) {
                report(
                    "ingest.address",
                    format!("{address} is also {key}; use another port"),
                );
            }
        }
        Ok(_) => {}
    }
    for (key, value) in [
        ("maxConnections", ingest.max_connections),
        ("maxUnverified", ingest.max_unverified),
        ("maxUnverifiedPerPeer", ingest.max_unverified_per_peer),
    ] {
        if value == 0 {
            report(&format!("ingest.{key}"), "must be at least 1".to_owned());
        }
    }
    if !(Span::seconds(1)..=Span::seconds(60)).contains(&ingest.handshake_timeout) {
        report("ingest.handshakeTimeout", "must be 1s to 1m".to_owned());
    }
    if ingest.max_age < Span::seconds(1) {
        report("ingest.maxAge", "must be at least 1s".to_owned());
    }
}
