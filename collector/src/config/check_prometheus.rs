//! Validation of the settings of `prometheus`.

use rustls::pki_types::ServerName;
use virtfleet_wire::{exposition::is_label_name, settings::Span};

use super::{CollectorConfig, check_endpoint::credentials};
use crate::mla::settings::{check_headers, check_url};

/// Reports the problems of `prometheus`.
pub(super) fn check(config: &CollectorConfig, report: &mut impl FnMut(&str, String)) {
    let Some(prometheus) = &config.prometheus else {
        return;
    };
    if prometheus.url.is_empty() {
        let message = "required: the URL of the server, e.g. https://prometheus.monitoring:9090";
        report("prometheus.url", message.to_owned());
    } else {
        match check_url(&prometheus.url, prometheus.insecure) {
            Err(why) => report("prometheus.url", why),
            Ok(url) if url.query().is_some() => report(
                "prometheus.url",
                "has a query; remove what begins with \"?\"".to_owned(),
            ),
            Ok(_) => {}
        }
    }
    if !(Span::seconds(1)..=Span::seconds(60)).contains(&prometheus.timeout) {
        report("prometheus.timeout", "must be 1s to 1m".to_owned());
    }
    for label in prometheus.labels.keys() {
        let path = format!("prometheus.labels.{label}");
        if !is_label_name(label) {
            let message = format!("{label:?} is not a label's name: use letters, digits and '_'");
            report(&path, message);
        } else if ["namespace", "name", "mode", "cpu"].contains(&label.as_str()) {
            report(&path, "the query sets this label; remove it".to_owned());
        }
    }
    let tls = &prometheus.tls;
    if let Some(name) = &tls.server_name
        && ServerName::try_from(name.as_str()).is_err()
    {
        let message = format!("{name:?} is neither a DNS name nor an IP address");
        report("prometheus.tls.serverName", message);
    }
    let (headers, auth) = (&prometheus.headers, &prometheus.auth);
    let names: Vec<&str> = headers.iter().map(|header| header.name.as_str()).collect();
    check_headers(&names, auth.is_set(), &mut |path, why| {
        report(&format!("prometheus.{path}"), why);
    });
    credentials("prometheus", tls, headers, auth, report);
}
