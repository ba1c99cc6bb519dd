//! Validation of the whole `AgentConfig`, beyond what its types check.

use std::net::{IpAddr, SocketAddr};

use virtfleet_wire::{
    layered::{Origins, Problem},
    settings::{AgentConfig, Listener, MetricsSettings, ServerSettings, ServerTls},
};

use super::{names, push};
use crate::{disks::wanted, dns::asked, nic};

/// Reports problems and removes invalid values, so that the agent can run with the rest. A listener
/// is removed; another value of `server`, and all of `metrics`, gets its default. An invalid disk
/// is reported and stays, and so do `dns`, `nic` and `virtio`: the reconcile run checks them again,
/// changes nothing, and reports why.
pub fn check(config: &mut AgentConfig, origins: &Origins) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |path: String, message: String| {
        problems.push(Problem::at(&origins.of(&path), path, message));
    };
    enrolment(&mut config.server.tls, &mut refuse);
    listeners(&mut config.server, &mut refuse);
    push::check(config, &mut refuse);
    durations(&mut config.server, &mut refuse);
    if let Err(error) = names::check_metrics(&config.metrics) {
        refuse(error.key(), error.message());
        config.metrics = MetricsSettings::default();
    }
    for problem in wanted::check(&config.disks).1 {
        refuse(problem.path, problem.message);
    }
    for problem in asked::check(&config.dns, None).err().unwrap_or_default() {
        refuse(problem.path, problem.message);
    }
    for problem in nic::check(&config.nic, &config.virtio).err().unwrap_or_default() {
        refuse(problem.path, problem.message);
    }
    problems
}

type Refuse<'a> = dyn FnMut(String, String) + 'a;

/// Files of the agent's own certificate contradict `enrolment`. They name an existing certificate,
/// so they stay.
fn enrolment(tls: &mut ServerTls, refuse: &mut Refuse<'_>) {
    let set: Vec<&str> = [("certificate", &tls.certificate), ("key", &tls.key)]
        .into_iter()
        .filter(|(_, file)| is_set(file.as_ref()))
        .map(|(key, _)| key)
        .collect();
    if tls.enrolment && !set.is_empty() {
        let keys: Vec<String> = set.iter().map(|key| format!("server.tls.{key}")).collect();
        let message = format!(
            "with enrolment a collector issues the certificate, but {} {} set; remove {}, or set enrolment to false",
            keys.join(" and "),
            if set.len() == 1 { "is" } else { "are" },
            if set.len() == 1 { "it" } else { "them" },
        );
        refuse("server.tls.enrolment".to_owned(), message);
        tls.enrolment = false;
    }
}

fn is_set(file: Option<&String>) -> bool {
    file.is_some_and(|file| !file.is_empty())
}

fn listeners(server: &mut ServerSettings, refuse: &mut Refuse<'_>) {
    let tls = &server.tls;
    let files = [
        ("certificate", &tls.certificate),
        ("key", &tls.key),
        ("clientCA", &tls.client_ca),
    ];
    let needed = if tls.enrolment { &files[2..] } else { &files[..] };
    let absent: Vec<&str> = needed
        .iter()
        .filter(|(_, file)| !is_set(file.as_ref()))
        .map(|(key, _)| *key)
        .collect();
    if server.listeners.is_empty() {
        let message = "empty, so metrics and the report would be unreachable; add at least one".to_owned();
        refuse("server.listeners".to_owned(), message);
    }
    let mut needs_tls: Vec<String> = Vec::new();
    let mut good: Vec<(Listener, SocketAddr)> = Vec::new();
    for listener in std::mem::take(&mut server.listeners) {
        let place = format!("server.listeners[{}]", listener.name);
        let Ok(address) = listener.address.parse::<SocketAddr>() else {
            let message = format!(
                "{:?} is not an address and port such as [::]:10911 or 127.0.0.1:10911",
                listener.address
            );
            refuse(place + ".address", message);
            continue;
        };
        if listener.plain && !address.ip().is_loopback() {
            let message =
                format!("HTTP without TLS is allowed only for loopback addresses, but {address} is not one");
            refuse(place + ".plain", message);
            continue;
        }
        if let Some((other, _)) = good.iter().find(|(_, held)| overlap(*held, address)) {
            let message = format!(
                "{address} is already used by listener {} ({})",
                other.name, other.address
            );
            refuse(place + ".address", message);
            continue;
        }
        if !listener.plain && !absent.is_empty() {
            needs_tls.push(listener.name);
            continue;
        }
        good.push((listener, address));
    }
    if !needs_tls.is_empty() {
        let keys: Vec<String> = absent.iter().map(|key| format!("server.tls.{key}")).collect();
        let message = format!(
            "listener {} serves HTTPS and needs {}; set {}, or make the listener plain on a loopback address",
            needs_tls.join(", "),
            keys.join(", "),
            if keys.len() == 1 { "it" } else { "them" }
        );
        refuse("server.tls".to_owned(), message);
    }
    server.listeners = good.into_iter().map(|(listener, _)| listener).collect();
}

/// Whether only one of the two addresses can be bound: same port, and equal or unspecified
/// addresses. `[::]` includes IPv4, the default of Linux (`net.ipv6.bindv6only = 0`).
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let covers = |wide: IpAddr, narrow: IpAddr| {
        wide == narrow || (wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4()))
    };
    a.port() == b.port() && a.port() != 0 && (covers(a.ip(), b.ip()) || covers(b.ip(), a.ip()))
}

fn durations(server: &mut ServerSettings, refuse: &mut Refuse<'_>) {
    if server.request_timeout.0.is_zero() {
        refuse(
            "server.requestTimeout".to_owned(),
            "0s leaves no time for any request".to_owned(),
        );
        server.request_timeout = ServerSettings::default().request_timeout;
    }
}
