//! Advice for admins beside the steps: limits of this guest, and changes to make outside the agent.

pub(super) use super::standing_advice::standing_advice;
use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::ours;

/// File in which systemd-resolved lists its upstream nameservers.
pub const UPSTREAMS: &str = "/run/systemd/resolve/resolv.conf";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "advice")]
pub enum Advice {
    /// Kubelet gives pods with `dnsPolicy: Default` (CoreDNS among them) an unusable file.
    #[serde(rename_all = "camelCase")]
    KubeletResolvConf {
        /// File that configures kubelet's `resolvConf`.
        config: String,
        /// File that kubelet reads.
        reads: String,
        /// Problem with that file.
        because: String,
        /// File that kubelet should read.
        instead: String,
        /// What to do, with the file or flag in effect.
        #[serde(default)]
        how: String,
    },
    /// The agent's file that kubelet is configured to read is missing: no pod starts.
    KubeletFileMissing {
        /// File that configures kubelet's `resolvConf`.
        config: String,
    },
    /// dhcpcd writes `/etc/resolv.conf` at each lease renewal.
    Dhcpcd { link: String },
    /// Resolver options that only `resolv.conf` supports.
    OptionsNotHonoured {
        /// Options as `name` or `name:value`.
        options: Vec<String>,
    },
    /// The resolver sends no DNS queries for names of the cluster, because they end in `.local`.
    LocalDomain { domain: String },
    /// No requested nameserver may be used; the last verified ones are used.
    LastGood {
        /// Last verified nameservers.
        nameservers: Vec<IpAddr>,
    },
    /// With `ClusterFirst`, no nameserver of the cluster or of `config` can be used. The agent uses
    /// the platform's until one can.
    #[serde(rename_all = "camelCase")]
    PlatformFallback {
        /// Nameservers that are requested and cannot be used.
        requested: Vec<IpAddr>,
        /// Nameservers of the platform, in the order of use.
        nameservers: Vec<IpAddr>,
    },
    /// A link with split DNS, which the agent leaves unchanged.
    #[serde(rename_all = "camelCase")]
    SplitLink {
        link: String,
        /// Route-only domains of the link, without `~`.
        domains: Vec<String>,
        nameservers: Vec<IpAddr>,
    },
    /// systemd-resolved keeps the nameservers that NetworkManager set on these links until their
    /// next activation, because `resolvectl` to remove them is missing.
    NetworkManagerLinks { links: Vec<String> },
    /// `/etc/resolv.conf` is the agent's, and the original file is unknown.
    OriginalLost,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KubeletResolvConf { config, reads, because, how, .. } => write!(
                f,
                "kubelet ({config}) gives pods with dnsPolicy Default {reads}, {because}: {how}"
            ),
            Self::KubeletFileMissing { config } => write!(
                f,
                "kubelet ({config}) reads {}, which does not exist: kubelet cannot start pods",
                ours::FOR_KUBELET
            ),
            Self::Dhcpcd { link } => write!(
                f,
                "dhcpcd on {link} writes /etc/resolv.conf at each renewal: add `nohook resolv.conf` to /etc/dhcpcd.conf"
            ),
            Self::OptionsNotHonoured { options } => write!(
                f,
                "systemd-resolved supports no resolver options, so {} has no effect: programs read options from /etc/resolv.conf, which systemd-resolved manages",
                options.join(" ")
            ),
            Self::LocalDomain { domain } => write!(
                f,
                "systemd-resolved sends no DNS queries for names below {domain}, because they end in .local and no search or route domain covers them"
            ),
            Self::LastGood { nameservers } => {
                write!(
                    f,
                    "no requested nameserver may be used; the last verified ones are used: {}",
                    list(nameservers)
                )
            }
            Self::PlatformFallback { requested, nameservers } => write!(
                f,
                "no requested nameserver ({}) can be used; the platform's are used until one answers again: {}",
                list(requested),
                list(nameservers)
            ),
            Self::SplitLink { link, domains, nameservers } => write!(
                f,
                "{link} has split DNS: queries for names below {} go to {}. The link is left unchanged, and its nameservers are not used for other names",
                domains.join(", "),
                list(nameservers)
            ),
            Self::NetworkManagerLinks { links } => write!(
                f,
                "NetworkManager has set nameservers of {0} in systemd-resolved, which stay until `resolvectl revert {1}` or the next activation",
                links.join(", "),
                links.first().map_or("", String::as_str)
            ),
            Self::OriginalLost => f.write_str(
                "/etc/resolv.conf was written by virtfleet-agent, and the original file is unknown: it is left unchanged; replace it with your own",
            ),
        }
    }
}

fn list(nameservers: &[IpAddr]) -> String {
    let all: Vec<String> = nameservers.iter().map(ToString::to_string).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests;
