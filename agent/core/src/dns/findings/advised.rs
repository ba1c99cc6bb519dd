//! Findings for the advice of a plan.

use virtfleet_wire::finding::{Finding, Severity};

use super::{super::advice::Advice, OTHER_NAMESERVERS_REMEDY, dns};

/// Returns the finding with its remedy.
pub(super) fn advised(advice: &Advice) -> Finding {
    let (id, severity, reason, remedy) = match advice {
        Advice::KubeletResolvConf { how, .. } => (
            "dns-kubelet-resolvconf",
            Severity::Warning,
            "KubeletResolvConf",
            how.clone(),
        ),
        Advice::KubeletFileMissing { .. } => (
            "dns-kubelet-file",
            Severity::Critical,
            "KubeletFileMissing",
            "sudo virtfleet-agent apply dns; if it writes nothing, set dns.config.nameservers"
                .to_owned(),
        ),
        Advice::Dhcpcd { .. } => (
            "dns-dhcpcd",
            Severity::Warning,
            "Dhcpcd",
            "add `nohook resolv.conf` to /etc/dhcpcd.conf".to_owned(),
        ),
        Advice::OptionsNotHonoured { .. } => (
            "dns-options",
            Severity::Info,
            "OptionsNotHonoured",
            "remove them from dns.config.options, or use names with dots; pods get their options from kubelet"
                .to_owned(),
        ),
        Advice::LocalDomain { .. } => (
            "dns-local-domain",
            Severity::Info,
            "LocalDomain",
            "sudo virtfleet-agent apply dns, or set dns.manage: auto".to_owned(),
        ),
        Advice::LastGood { .. } => ("dns-last-good", Severity::Warning, "LastGood", OTHER_NAMESERVERS_REMEDY.to_owned()),
        Advice::PlatformFallback { requested, .. } => (
            "dns-platform-fallback",
            Severity::Critical,
            "PlatformFallback",
            format!(
                "repair the cluster's DNS, or set dns.cluster.nameservers to addresses that answer; query manually: dig +tries=1 @{}",
                requested
                    .first()
                    .map_or("ADDRESS".to_owned(), ToString::to_string)
            ),
        ),
        // Critical until the agent's files exist: they show that the link was left unchanged
        // (`super::split`).
        Advice::SplitLink { link, domains, .. } => (
            "dns-split-link",
            Severity::Critical,
            "SplitDns",
            format!(
                "run `resolvectl status {link}` before you set dns.manage: auto, and `resolvectl query NAME.{}` afterwards; if its nameservers should answer all queries, add the domain `~.` to the link",
                domains.first().map_or("", String::as_str)
            ),
        ),
        Advice::NetworkManagerLinks { links } => (
            "dns-network-manager",
            Severity::Info,
            "NetworkManagerLinks",
            format!(
                "sudo resolvectl revert {}",
                links.first().map_or("", String::as_str)
            ),
        ),
        Advice::OriginalLost => (
            "dns-original-lost",
            Severity::Warning,
            "OriginalLost",
            "replace it with your own /etc/resolv.conf".to_owned(),
        ),
    };
    dns(id, severity, reason, advice.to_string()).remedy(remedy)
}
