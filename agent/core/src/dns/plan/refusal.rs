//! Refusals of the plan: why nothing is written, with evidence and remedy.

use super::{DnsStep, Refusal, RefusalKind, Service, steps::reader};
use crate::dns::{
    answers::Judged,
    collision::Collision,
    merge::Merged,
    ours,
    render::Rendered,
    resolv::ResolvConf,
    seen::{Link, Manager, Obstacle, Seen},
    split::{self, split_links},
};

/// Refusal: no requested nameserver may be used and answers. The configuration in use stays, even
/// if its only nameserver collides: having no nameserver is worse.
pub(super) fn nothing_verified(
    merged: &Merged,
    now: &ResolvConf,
    collisions: &[Collision],
    judged: &[Judged],
) -> Refusal {
    let mut facts = Vec::new();
    for nameserver in &merged.conf.nameservers {
        let collision = collisions.iter().find(|one| one.nameserver == *nameserver);
        let health = judged.iter().find(|one| one.nameserver == *nameserver);
        let what = match (collision, health) {
            (Some(one), _) => format!("collides with {}", one.with),
            (None, Some(one)) => one.because.clone(),
            (None, None) => "was not probed".to_owned(),
        };
        facts.push((nameserver.to_string(), what));
    }
    facts.push(("inUse".to_owned(), now.shown_nameservers().join(" ")));
    let asked = &merged.conf.nameservers;
    let all_collide = !asked.is_empty()
        && asked
            .iter()
            .all(|one| collisions.iter().any(|other| other.nameserver == *one));
    let (message, remedy) = if asked.is_empty() {
        (
            "no nameserver is known from the platform or from the settings; the configuration in use stays"
                .to_owned(),
            "set dns.config.nameservers, or dns.cluster.nameservers with dns.policy: ClusterFirst".to_owned(),
        )
    } else if all_collide {
        (
            "every requested nameserver collides with the user cluster's own, and no other is known; the configuration in use stays".to_owned(),
            "set dns.config.nameservers, or dns.cluster.nameservers with dns.policy: ClusterFirst, to addresses of the infra cluster's DNS that VMs can reach"
                .to_owned(),
        )
    } else {
        (
            "no requested nameserver may be used and answers; the configuration in use stays".to_owned(),
            "`sudo virtfleet-agent plan dns` shows each of them; check that the VM reaches port 53 of one of them over UDP and TCP".to_owned(),
        )
    };
    Refusal {
        kind: RefusalKind::NothingVerified,
        message,
        remedy,
        facts,
    }
}

/// Returns the obstacles to the steps.
pub(super) fn obstacles(seen: &Seen, rendered: &Rendered, steps: &[DnsStep]) -> Vec<Refusal> {
    let mut all = Vec::new();
    for file in &rendered.files {
        if seen
            .files
            .get(&file.path)
            .is_some_and(|text| !ours::is_ours(text))
        {
            all.push(refusal(
                RefusalKind::NotOurs,
                format!("{} exists and was not written by the agent", file.path),
                format!("move it away: sudo mv {0} {0}.old", file.path),
                &file.path,
            ));
        }
    }
    let replaces = |step: &DnsStep| {
        matches!(
            step,
            DnsStep::ReplaceResolvConf { .. } | DnsStep::RestoreResolvConf { .. }
        )
    };
    if seen.resolv_conf.fixed && steps.iter().any(replaces) {
        let (because, remedy) = match &seen.resolv_conf.obstacle {
            Some(Obstacle { because, remedy }) => (because.as_str(), remedy.as_str()),
            None => (
                "it is immutable, a mount point, or on a read-only filesystem",
                "`lsattr -d /etc /etc/resolv.conf` and `findmnt --target /etc/resolv.conf` show which",
            ),
        };
        all.push(refusal(
            RefusalKind::NotOurs,
            format!("/etc/resolv.conf cannot be replaced: {because}"),
            format!("{remedy}; to keep it, set dns.manage: off"),
            ours::RESOLV_CONF,
        ));
    }
    if !steps.iter().all(DnsStep::is_kubelets) {
        all.extend(split_links(seen).filter_map(|link| split(rendered, link)));
    }
    for step in steps {
        let tool = match step {
            DnsStep::Reload { service } => tool(*service),
            DnsStep::SuppressLink { .. } | DnsStep::RestoreLink { .. } => "resolvectl",
            _ => continue,
        };
        // A service whose configuration is only removed may be uninstalled; then it needs no
        // reload.
        let gone = matches!(step, DnsStep::Reload { service } if *service != Service::Resolvconf
            && !rendered.files.iter().any(|file| reader(&file.path) == Some(*service)));
        if !gone && seen.missing_tools.iter().any(|missing| missing == tool) {
            all.push(refusal(
                RefusalKind::NoTool,
                format!("{tool} is not installed"),
                match step {
                    DnsStep::Reload { .. } => format!("install {tool} in the image"),
                    _ => format!(
                        "install {tool} in the image, or reconfigure the links: sudo virtfleet-agent apply dns"
                    ),
                },
                tool,
            ));
        }
        if let (
            DnsStep::Reload {
                service: Service::NetworkManager,
            },
            Some(version),
        ) = (
            step,
            seen.nmcli.filter(|version| *version < FIRST_VERSION_WITH_RELOAD),
        ) {
            let (major, minor) = version;
            all.push(refusal(
                RefusalKind::NoTool,
                format!("NetworkManager {major}.{minor} has no `nmcli general reload` (added in 1.22)"),
                "upgrade NetworkManager in the image, or set the nameservers in its connections".to_owned(),
                "nmcli",
            ));
        }
    }
    all.dedup();
    all
}

/// Refusal for a link whose split DNS the agent's files would disable: NetworkManager's
/// configuration applies to all its links, and several links may share a `.network` file.
fn split(rendered: &Rendered, link: &Link) -> Option<Refusal> {
    let path = match link.manager {
        Manager::NetworkManager => Some(ours::NETWORK_MANAGER.to_owned()),
        _ => split::drop_in(link),
    };
    let path = path.filter(|path| rendered.files.iter().any(|file| file.path == *path))?;
    let domains = link.routes.join(", ");
    Some(refusal(
        RefusalKind::SplitDns,
        format!(
            "{} has split DNS: queries for names below {domains} go to its own nameservers, which {path} would remove",
            link.name
        ),
        match link.manager {
            Manager::NetworkManager => format!(
                "configure the domains of {} outside NetworkManager (resolvectl domain), or forward {domains} on the nameservers of dns.config, or set dns.manage: off",
                link.name
            ),
            _ => format!(
                "give {} a .network file of its own, or set dns.manage: off",
                link.name
            ),
        },
        &link.name,
    ))
}

/// First version of NetworkManager with `nmcli general reload`.
const FIRST_VERSION_WITH_RELOAD: (u32, u32) = (1, 22);

/// Program that makes the service reload its configuration.
fn tool(service: Service) -> &'static str {
    match service {
        Service::Resolved => "systemctl",
        Service::Networkd => "networkctl",
        Service::NetworkManager => "nmcli",
        Service::Resolvconf => "resolvconf",
    }
}

fn refusal(kind: RefusalKind, message: String, remedy: String, what: &str) -> Refusal {
    Refusal {
        kind,
        message,
        remedy,
        facts: vec![("path".to_owned(), what.to_owned())],
    }
}
