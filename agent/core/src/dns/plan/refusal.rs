//! Why nothing is written, with what was found and what to do next.

use super::{Refusal, RefusalKind, Service, Step, steps::reader};
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

/// Nothing that is asked for may be used and answers. What is in use stays, also when it is the only nameserver and collides: no nameserver is worse.
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
            (None, None) => "was not asked".to_owned(),
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
            "the platform gave no nameserver that is known, and the settings name none; what is in use stays"
                .to_owned(),
            "set dns.config.nameservers, or dns.cluster.nameservers with dns.policy: ClusterFirst".to_owned(),
        )
    } else if all_collide {
        (
            "every nameserver that is asked for collides with the user cluster's own, and no other is known; what is in use stays".to_owned(),
            "set dns.config.nameservers, or dns.cluster.nameservers with dns.policy: ClusterFirst, to addresses of the infra cluster's DNS that VMs reach"
                .to_owned(),
        )
    } else {
        (
            "no nameserver that is asked for may be used and answers; what is in use stays".to_owned(),
            "see each with `sudo virtfleet-agent plan dns`; check that the VM reaches port 53, by UDP and TCP, of one of them".to_owned(),
        )
    };
    Refusal {
        kind: RefusalKind::NothingVerified,
        message,
        remedy,
        facts,
    }
}

/// What is in the way of the steps.
pub(super) fn obstacles(seen: &Seen, rendered: &Rendered, steps: &[Step]) -> Vec<Refusal> {
    let mut all = Vec::new();
    for file in &rendered.files {
        if seen
            .files
            .get(&file.path)
            .is_some_and(|text| !ours::is_ours(text))
        {
            all.push(refusal(
                RefusalKind::NotOurs,
                format!("{} is there, and is not ours", file.path),
                format!("move it away: sudo mv {0} {0}.old", file.path),
                &file.path,
            ));
        }
    }
    let replaces = |step: &Step| matches!(step, Step::TakeOver { .. } | Step::GiveBack { .. });
    if seen.resolv_conf.fixed && steps.iter().any(replaces) {
        let (because, remedy) = match &seen.resolv_conf.obstacle {
            Some(Obstacle { because, remedy }) => (because.as_str(), remedy.as_str()),
            None => (
                "it is immutable, a mount point, or on a filesystem that is mounted read-only",
                "`lsattr -d /etc /etc/resolv.conf` and `findmnt --target /etc/resolv.conf` show which",
            ),
        };
        all.push(refusal(
            RefusalKind::NotOurs,
            format!("/etc/resolv.conf cannot be replaced: {because}"),
            format!("{remedy}; if it is meant to stay, set dns.manage: off"),
            ours::RESOLV_CONF,
        ));
    }
    if !steps.iter().all(Step::is_kubelets) {
        all.extend(split_links(seen).filter_map(|link| split(rendered, link)));
    }
    for step in steps {
        let tool = match step {
            Step::Reload { service } => tool(*service),
            Step::Quiet { .. } | Step::Speak { .. } => "resolvectl",
            _ => continue,
        };
        // One of whom nothing is wanted any more may be uninstalled, and then there is nobody to tell.
        let gone = matches!(step, Step::Reload { service } if *service != Service::Resolvconf
            && !rendered.files.iter().any(|file| reader(&file.path) == Some(*service)));
        if !gone && seen.missing_tools.iter().any(|missing| missing == tool) {
            all.push(refusal(
                RefusalKind::NoTool,
                format!("{tool} is not there"),
                match step {
                    Step::Reload { .. } => format!("install {tool} in the image"),
                    _ => format!(
                        "install {tool} in the image, or have links configured anew: sudo virtfleet-agent apply dns"
                    ),
                },
                tool,
            ));
        }
        if let (
            Step::Reload {
                service: Service::NetworkManager,
            },
            Some(version),
        ) = (step, seen.nmcli.filter(|version| *version < RELOADS))
        {
            let (major, minor) = version;
            all.push(refusal(
                RefusalKind::NoTool,
                format!("NetworkManager {major}.{minor} has no `nmcli general reload`, which is there from 1.22 on"),
                "upgrade NetworkManager in the image, or set the nameservers in its connections".to_owned(),
                "nmcli",
            ));
        }
    }
    all.dedup();
    all
}

/// A link with split DNS that our files would silence: NetworkManager's configuration is one for all its links, and a `.network` file may be shared by several.
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
            "{} has split DNS: names below {domains} go to its own nameservers, which {path} would take away",
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

/// The first version of NetworkManager with `nmcli general reload`.
const RELOADS: (u32, u32) = (1, 22);

/// What a service is told with.
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
