//! What a person should know beside the steps: what cannot be done here, and what to tell others.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{
    asked::Asked,
    effective::effective,
    inherited::inherited,
    kubelet, names, ours,
    resolv::ResolvConf,
    seen::{Owner, Seen},
    split::{self, split_links},
};

/// Where systemd-resolved lists its upstreams.
pub const UPSTREAMS: &str = "/run/systemd/resolve/resolv.conf";

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "advice")]
pub enum Advice {
    /// Kubelet gives pods with `dnsPolicy: Default` (CoreDNS among them) a file that is of no use to them.
    #[serde(rename_all = "camelCase")]
    KubeletResolvConf {
        /// Where kubelet is told so.
        config: String,
        /// The file that it reads.
        reads: String,
        /// What is wrong with it.
        because: String,
        /// The file that it should read.
        instead: String,
        /// What to do, with the file or the flag that counts.
        #[serde(default)]
        how: String,
    },
    /// The file of ours that kubelet is told to read is not there: no pod starts.
    KubeletFileMissing {
        /// Where kubelet is told so.
        config: String,
    },
    /// dhcpcd writes `/etc/resolv.conf` at each renewal.
    Dhcpcd {
        /// On which link.
        link: String,
    },
    /// Options that only `resolv.conf` could carry.
    OptionsNotHonoured {
        /// As `name` or `name:value`.
        options: Vec<String>,
    },
    /// Names of the cluster are not asked of a DNS server now, since they end in `.local`.
    LocalDomain {
        /// The cluster's domain.
        domain: String,
    },
    /// Nothing that is asked for may be used; the last good nameservers are.
    LastGood {
        /// These.
        nameservers: Vec<IpAddr>,
    },
    /// `ClusterFirst`, and no nameserver of the cluster or of `config` can be used: the platform's are used until one can.
    #[serde(rename_all = "camelCase")]
    PlatformFallback {
        /// Nameservers that are requested and cannot be used.
        requested: Vec<IpAddr>,
        /// The platform's, in the order in which they are used.
        nameservers: Vec<IpAddr>,
    },
    /// A link with split DNS, which is left as it is.
    #[serde(rename_all = "camelCase")]
    SplitLink {
        /// The link's name.
        link: String,
        /// Its route-only domains, without `~`.
        domains: Vec<String>,
        /// Its nameservers.
        nameservers: Vec<IpAddr>,
    },
    /// systemd-resolved keeps what NetworkManager has told it of these links until they are activated again, because there is no `resolvectl` to tell it to forget.
    NetworkManagerLinks {
        /// Their names.
        links: Vec<String>,
    },
    /// `/etc/resolv.conf` is ours, and what stood there before is not known.
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
                "kubelet ({config}) reads {}, which is not there: it starts no pod",
                ours::FOR_KUBELET
            ),
            Self::Dhcpcd { link } => write!(
                f,
                "dhcpcd on {link} writes /etc/resolv.conf at each renewal: add `nohook resolv.conf` to /etc/dhcpcd.conf"
            ),
            Self::OptionsNotHonoured { options } => write!(
                f,
                "systemd-resolved has no options, so {} counts for nobody: programs read it from /etc/resolv.conf, which is systemd-resolved's",
                options.join(" ")
            ),
            Self::LocalDomain { domain } => write!(
                f,
                "systemd-resolved asks no DNS server for names below {domain}, because they end in .local and no search or route domain covers them"
            ),
            Self::LastGood { nameservers } => {
                write!(
                    f,
                    "nothing that is asked for may be used; the nameservers that were verified last are: {}",
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
                "{link} has split DNS: names below {} go to {}. The link is left as it is, and its nameservers are not used for other names",
                domains.join(", "),
                list(nameservers)
            ),
            Self::NetworkManagerLinks { links } => write!(
                f,
                "NetworkManager has told systemd-resolved nameservers of {0}, which stay until `resolvectl revert {1}` or the next activation",
                links.join(", "),
                links.first().map_or("", String::as_str)
            ),
            Self::OriginalLost => f.write_str(
                "/etc/resolv.conf was written by virtfleet-agent, and what stood there before is not known: it stays as it is; put your own in its place",
            ),
        }
    }
}

fn list(nameservers: &[IpAddr]) -> String {
    let all: Vec<String> = nameservers.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// What there is to say whatever the plan is.
pub(super) fn standing_advice(asked: &Asked, seen: &Seen, merged: &ResolvConf) -> Vec<Advice> {
    let mut all = Vec::new();
    all.extend(kubelet::advice(seen, merged));
    all.extend(local_domain(asked, seen));
    all.extend(split_links(seen).map(|link| {
        Advice::SplitLink {
            link: link.name.clone(),
            domains: link.routes.clone(),
            nameservers: split::nameservers(link)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
        }
    }));
    all
}

/// Only where names of the cluster are meant to be resolved: the policy says so, or the platform gave a search domain of it.
fn local_domain(asked: &Asked, seen: &Seen) -> Option<Advice> {
    let domain = asked.cluster_domain.as_str();
    let written = seen
        .files
        .get(ours::RESOLVED)
        .is_some_and(|text| ours::is_ours(text));
    let concerned = seen.owner == Owner::Resolved && !written && names::below(domain, "local");
    let meant = asked.cluster_first()
        || inherited(seen)
            .0
            .searches
            .iter()
            .any(|search| names::below(search, domain));
    let covered = effective(seen)
        .searches
        .iter()
        .any(|search| names::below(domain, search));
    (concerned && meant && !covered).then(|| Advice::LocalDomain {
        domain: domain.to_owned(),
    })
}

#[cfg(test)]
mod tests;
