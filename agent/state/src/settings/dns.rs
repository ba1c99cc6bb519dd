//! What the settings request of DNS.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use virtfleet_agent_core::dns::{
    Asked,
    asked::check,
    plan::{Refusal, RefusalKind},
};
use virtfleet_agent_host::Roots;
use virtfleet_wire::settings::{DnsManage, DnsPolicy, DnsSettings};

use super::LoadedSettings;
use crate::identity::observe;

/// What the settings ask for, as far as they can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What is asked for; when nothing may be done, what looking needs.
    pub asked: Asked,
    /// Why nothing may be done: the settings are wrong, or not all of them are known.
    pub refusals: Vec<Refusal>,
}

/// What the settings ask for. A section `dns` that is wrong, or a file that is left out, never undoes what is there: nothing is done then.
pub fn wanted(roots: &Roots, settings: &LoadedSettings) -> Wanted {
    let dns = &settings.config.dns;
    let namespace = namespace(roots, dns);
    let refusal = |message: String, place: String| Refusal {
        kind: RefusalKind::Settings,
        message,
        remedy: "virtfleet-agent check-config".to_owned(),
        facts: vec![("place".to_owned(), place)],
    };
    let wrong = settings
        .problems
        .iter()
        .filter(|problem| problem.section() == "dns")
        .map(|problem| refusal(problem.to_string(), problem.path.clone()));
    let mut refusals: Vec<Refusal> = wrong.collect();
    let checked = check(dns, namespace.as_deref());
    if let (Err(problems), true) = (&checked, refusals.is_empty()) {
        let each = problems.iter();
        refusals.extend(each.map(|problem| {
            refusal(
                format!("{}: {}", problem.path, problem.message),
                problem.path.clone(),
            )
        }));
    }
    if let (true, Some(file)) = (refusals.is_empty(), settings.skipped.first()) {
        let message = format!("{file} is left out, so what is asked of DNS is not known");
        refusals.push(refusal(message, file.clone()));
    }
    match checked {
        Ok(asked) if refusals.is_empty() => Wanted { asked, refusals },
        _ => Wanted {
            asked: only_look(),
            refusals,
        },
    }
}

/// The VM's namespace by its asset tag, where it is needed and not set.
fn namespace(roots: &Roots, dns: &DnsSettings) -> Option<String> {
    let cluster = matches!(
        dns.policy,
        DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet
    );
    if !cluster || dns.cluster.namespace.is_some() {
        return None;
    }
    let vm = observe(roots).claims.vm?.value;
    Some(vm.split_once('/')?.0.to_owned())
}

/// The settings' defaults.
fn only_look() -> Asked {
    let probe = virtfleet_wire::settings::DnsProbeSettings::default();
    let milliseconds = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Asked {
        manage: DnsManage::ReportOnly,
        policy: DnsPolicy::Default,
        host_network: false,
        nameservers: Vec::new(),
        searches: Vec::new(),
        options: Vec::new(),
        cluster_nameservers: Vec::new(),
        cluster_domain: "cluster.local".to_owned(),
        namespace: None,
        node_local: vec![IpAddr::V4(Ipv4Addr::new(169, 254, 20, 10))],
        user_nameservers: Vec::new(),
        service_ranges: Vec::new(),
        probe_names: Vec::new(),
        probe_timeout_ms: milliseconds(probe.timeout.0),
        probe_interval_ms: milliseconds(probe.interval.0),
    }
}
