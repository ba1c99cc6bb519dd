//! DNS of the VMI, which KubeVirt gives to the guest by DHCP.

use super::{
    check::{NOT_REPORTED, SpecCheck},
    value::{SpecPath, SpecValue},
};
use crate::{
    guest_hardware::{GuestHardware, GuestResolver},
    vmi_spec::{DnsSpec, VmiSpec},
};

pub(super) fn checks<'a>(spec: &'a VmiSpec, guest: &'a GuestHardware, all: &mut Vec<SpecCheck<'a>>) {
    let Some(dns) = spec.dns.as_deref() else { return };
    if let Some(policy) = dns.policy.as_deref().filter(|policy| *policy != "None") {
        all.push(SpecCheck::not_seen(
            SpecPath::Field("spec.dnsPolicy"),
            SpecValue::Text(policy),
            "the nameservers of this policy are those of the infra cluster, which the VMI does not have",
        ));
    }
    let resolver = guest.resolver.as_deref();
    let lists = [
        nameservers(dns, resolver),
        searches(dns, resolver),
        options(dns, resolver),
    ];
    let is_managed = resolver.is_some_and(|seen| seen.is_managed);
    all.extend(
        lists
            .into_iter()
            .flatten()
            .map(|check| managed(check, is_managed)),
    );
}

/// What the agent's settings ask for goes before the VMI.
fn managed(check: SpecCheck<'_>, is_managed: bool) -> SpecCheck<'_> {
    if !is_managed || check.seen.is_none() {
        return check;
    }
    let why = "the agent's settings decide the DNS of this guest (dns.manage: auto)";
    SpecCheck {
        seen: check.seen,
        ..SpecCheck::not_seen(check.path, check.asked, why)
    }
}

fn nameservers<'a>(dns: &'a DnsSpec, resolver: Option<&'a GuestResolver>) -> Option<SpecCheck<'a>> {
    let asked = &dns.nameservers;
    let path = SpecPath::Field("spec.dnsConfig.nameservers");
    let seen = resolver.map(|seen| &seen.nameservers);
    (!asked.is_empty()).then(|| match seen {
        Some(seen) => SpecCheck::new(
            path,
            SpecValue::Addresses(asked),
            SpecValue::Addresses(seen),
            asked.iter().all(|one| seen.contains(one)),
            "the guest asks other nameservers than the VMI says",
        ),
        None => SpecCheck::not_seen(path, SpecValue::Addresses(asked), NOT_REPORTED),
    })
}

fn searches<'a>(dns: &'a DnsSpec, resolver: Option<&'a GuestResolver>) -> Option<SpecCheck<'a>> {
    words(
        SpecPath::Field("spec.dnsConfig.searches"),
        &dns.searches,
        resolver.map(|seen| &*seen.searches),
        "short names are not resolved; KubeVirt gives search domains by DHCPv4 only",
    )
}

fn options<'a>(dns: &'a DnsSpec, resolver: Option<&'a GuestResolver>) -> Option<SpecCheck<'a>> {
    words(
        SpecPath::Field("spec.dnsConfig.options"),
        &dns.options,
        resolver.map(|seen| &*seen.options),
        "KubeVirt gives a guest no options (kubevirt#11165): set them in the guest, e.g. in dns.config of the \
         agent's settings",
    )
}

/// None if nothing is asked for.
fn words<'a>(
    path: SpecPath<'a>,
    asked: &'a [Box<str>],
    seen: Option<&'a [Box<str>]>,
    why: &'static str,
) -> Option<SpecCheck<'a>> {
    let is_same = |a: &str, b: &str| plain(a).eq_ignore_ascii_case(plain(b));
    (!asked.is_empty()).then(|| match seen {
        Some(seen) => {
            let agrees = asked
                .iter()
                .all(|asked| seen.iter().any(|seen| is_same(asked, seen)));
            SpecCheck::new(path, SpecValue::Words(asked), SpecValue::Words(seen), agrees, why)
        }
        None => SpecCheck::not_seen(path, SpecValue::Words(asked), NOT_REPORTED),
    })
}

/// A domain without its last dot.
fn plain(domain: &str) -> &str {
    domain.strip_suffix('.').unwrap_or(domain)
}
