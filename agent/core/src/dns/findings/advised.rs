//! Advice as findings.

use virtfleet_wire::finding::{Finding, Severity};

use super::{super::advice::Advice, INSTEAD, dns};

/// Each with what to do.
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
            "sudo virtfleet-agent apply dns; if nothing is known to write, set dns.config.nameservers"
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
            "remove them from dns.config.options, or give names with dots; pods get theirs from kubelet"
                .to_owned(),
        ),
        Advice::LocalDomain { .. } => (
            "dns-local-domain",
            Severity::Info,
            "LocalDomain",
            "sudo virtfleet-agent apply dns, or set dns.manage: auto".to_owned(),
        ),
        Advice::LastGood { .. } => ("dns-last-good", Severity::Warning, "LastGood", INSTEAD.to_owned()),
        Advice::PlatformFallback { requested, .. } => (
            "dns-platform-fallback",
            Severity::Critical,
            "PlatformFallback",
            format!(
                "repair the cluster's DNS, or set dns.cluster.nameservers to addresses that answer; ask by hand: dig +tries=1 @{}",
                requested
                    .first()
                    .map_or("ADDRESS".to_owned(), ToString::to_string)
            ),
        ),
        // Critical until our files are there: then it is known to have been left alone (`super::split`).
        Advice::SplitLink { link, domains, .. } => (
            "dns-split-link",
            Severity::Critical,
            "SplitDns",
            format!(
                "compare `resolvectl status {link}` before dns.manage: auto, and `resolvectl query NAME.{}` afterwards; if its nameservers are to answer everything, add the domain `~.` to the link",
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
            "put your own /etc/resolv.conf in its place".to_owned(),
        ),
    };
    dns(id, severity, reason, advice.to_string()).remedy(remedy)
}
