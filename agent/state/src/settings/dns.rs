//! The DNS section of the settings, checked.

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

/// The requested DNS configuration, as far as the settings are usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The request. If there are refusals: the defaults, which permit probing only.
    pub asked: Asked,
    /// Reasons not to change anything: the settings are wrong, or a settings file could not be
    /// read.
    pub refusals: Vec<Refusal>,
}

/// The requested DNS configuration. If the `dns` section is wrong or a file was skipped, the
/// current configuration stays: the result then has refusals.
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
        let message = format!("{file} was skipped, so the requested DNS configuration is unknown");
        refusals.push(refusal(message, file.clone()));
    }
    match checked {
        Ok(asked) if refusals.is_empty() => Wanted { asked, refusals },
        _ => Wanted {
            asked: report_only(),
            refusals,
        },
    }
}

/// The VM's namespace from its asset tag, if the policy needs it and the settings do not set it.
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

/// The settings' defaults, in report-only mode.
fn report_only() -> Asked {
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
