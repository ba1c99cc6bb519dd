//! Findings about the guest's DNS, for the report and for `doctor`.

mod advised;

use virtfleet_wire::{
    finding::{Finding, Severity},
    settings::DnsManage,
};

use super::{
    advice::Advice,
    answers::{Health, Judged, Purpose},
    asked::Asked,
    collision::{Collision, CollisionKind},
    merge::{Trimmed, Warning},
    plan::{Plan, Refusal, RefusalKind},
    state::{DnsState, DnsStatus},
};
use advised::advised;

/// Remedy that names the settings for other nameservers.
const OTHER_NAMESERVERS_REMEDY: &str = "set dns.config.nameservers, or dns.cluster.nameservers with dns.policy: ClusterFirst, to addresses that are not the user cluster's";

/// Returns the findings. Their ids begin with `dns-` and are listed in `docs/dns-reference.md`.
/// With `manage: off`, only obstacles to restoring the original configuration are reported.
pub fn findings(state: &DnsState, asked: &Asked, plan: &Plan) -> Vec<Finding> {
    let mut all: Vec<Finding> = plan.refusals.iter().map(refused).collect();
    if asked.manage == DnsManage::Off {
        return all;
    }
    if state.has_no_nameserver() {
        // The platform may assign no nameserver on purpose.
        for finding in &mut all {
            finding.severity = Severity::Warning;
        }
    }
    let view = View { state, asked, plan };
    all.extend(plan.collisions.iter().filter_map(|one| view.collision(one)));
    all.extend(plan.averted.iter().map(averted));
    all.extend(plan.judged.iter().filter_map(|one| view.health(one)));
    all.extend(view.standing());
    all.extend(view.unmaintained());
    all.extend(view.kubelet_waits());
    all.extend(plan.trimmed.iter().map(trimmed));
    all.extend(plan.warnings.iter().map(|one| warning(one, asked)));
    let refused = |advice: &Advice| match advice {
        Advice::SplitLink { link, .. } => {
            let of_link = |one: &Refusal| one.facts.iter().any(|(_, what)| what == link);
            let mut refusals = plan.refusals.iter();
            refusals.any(|one| one.kind == RefusalKind::SplitDns && of_link(one))
        }
        _ => false,
    };
    let advice = plan.advice.iter().filter(|one| !refused(one));
    all.extend(advice.map(|one| view.advised(one)));
    all
}

fn dns(id: &str, severity: Severity, reason: &str, message: impl Into<String>) -> Finding {
    Finding::new(id, severity, ("DNS", "resolver"), reason, message)
}

fn nameserver(id: &str, severity: Severity, name: impl ToString, reason: &str, message: String) -> Finding {
    Finding::new(id, severity, ("Nameserver", &name.to_string()), reason, message)
}

fn refused(refusal: &Refusal) -> Finding {
    let (id, severity, reason) = match refusal.kind {
        RefusalKind::Settings => ("dns-settings", Severity::Warning, "Settings"),
        RefusalKind::NothingVerified => ("dns-nothing-verified", Severity::Critical, "NothingVerified"),
        RefusalKind::NotOurs => ("dns-not-ours", Severity::Warning, "NotOurs"),
        RefusalKind::NoTool => ("dns-no-tool", Severity::Warning, "NoTool"),
        RefusalKind::SplitDns => ("dns-split-link", Severity::Critical, "SplitDns"),
        RefusalKind::Unreadable => ("dns-unreadable", Severity::Warning, "Unreadable"),
    };
    let mut finding = dns(id, severity, reason, refusal.message.clone());
    if matches!(
        refusal.kind,
        RefusalKind::NotOurs | RefusalKind::NoTool | RefusalKind::SplitDns
    ) && let Some((_, what)) = refusal.facts.first()
    {
        finding.subject.name.clone_from(what);
    }
    for (name, fact) in &refusal.facts {
        finding = finding.with(name, fact);
    }
    finding.remedy(refusal.remedy.clone())
}

struct View<'a> {
    state: &'a DnsState,
    asked: &'a Asked,
    plan: &'a Plan,
}

impl View<'_> {
    fn in_use(&self, nameserver: std::net::IpAddr) -> bool {
        self.state.effective.nameservers.contains(&nameserver)
    }

    /// Finding for an advice. A link with split DNS is critical until the agent's files exist, and
    /// informational once they do and the link was left unchanged. Its subject is the link.
    fn advised(&self, advice: &Advice) -> Finding {
        let mut finding = advised(advice);
        if let Advice::SplitLink {
            link,
            domains,
            nameservers,
        } = advice
        {
            let servers: Vec<String> = nameservers.iter().map(ToString::to_string).collect();
            finding.subject.name.clone_from(link);
            finding = finding
                .with("domains", domains.join(" "))
                .with("nameservers", servers.join(" "));
            if !self.state.ours.is_empty() && self.plan.steps.is_empty() {
                finding.severity = Severity::Info;
            }
        }
        finding
    }

    /// Finding for a collision. For a nameserver that is not in use it says only that it is left
    /// out.
    fn collision(&self, one: &Collision) -> Option<Finding> {
        let ns = one.nameserver;
        let in_use = self.in_use(ns);
        if !in_use && !self.state.asked.nameservers.contains(&ns) {
            return None;
        }
        let alone = self.plan.choice.is_none();
        let what = collides(one.kind);
        let (id, reason) = if one.now {
            ("dns-collision", "Collision")
        } else {
            ("dns-collision-predicted", "CollisionPredicted")
        };
        let severity = match (in_use, one.now, alone) {
            (true, true, _) | (_, _, true) => Severity::Critical,
            (true, false, false) => Severity::Warning,
            (false, _, false) => Severity::Info,
        };
        let use_now = if in_use { "it is in use" } else { "it is left out" };
        let message = format!("{ns}, from {}, {what}; {use_now}", one.given_by);
        let remedy = if in_use && !alone && self.asked.manage == DnsManage::ReportOnly {
            "sudo virtfleet-agent apply dns, or set dns.manage: auto".to_owned()
        } else {
            OTHER_NAMESERVERS_REMEDY.to_owned()
        };
        Some(
            nameserver(id, severity, ns, reason, message)
                .with("with", &one.with)
                .with("givenBy", &one.given_by)
                .with("inUse", in_use)
                .remedy(remedy),
        )
    }

    /// Finding about the health of a nameserver that is in use or requested.
    fn health(&self, judged: &Judged) -> Option<Finding> {
        let ns = judged.nameserver;
        let in_use = self.in_use(ns);
        if !in_use && !self.state.asked.nameservers.contains(&ns) {
            return None;
        }
        let broken = self.state.standing == DnsStatus::Broken;
        let serious = if in_use && broken {
            Severity::Critical
        } else {
            Severity::Warning
        };
        let dig = format!(
            "query it manually: dig +tries=1 @{ns} kubernetes.default.svc.{}",
            self.asked.cluster_domain
        );
        let reach = format!(
            "check the network path to {ns}, port 53 over UDP and TCP, e.g. network policies of the VM's namespace"
        );
        let unknown_cluster = judged.answers.iter().any(|answer| {
            answer.question.purpose == Purpose::Cluster && judged.because.contains(&answer.question.name)
        });
        let (id, severity, reason, remedy) = match judged.health {
            Health::Healthy => return None,
            Health::Slow => ("dns-nameserver-slow", Severity::Info, "Slow", reach),
            Health::NoTcp => (
                "dns-no-tcp",
                Severity::Warning,
                "NoTcp",
                format!("allow TCP to {ns}, port 53: long answers need it"),
            ),
            Health::TcpOnly => (
                "dns-tcp-only",
                Severity::Warning,
                "TcpOnly",
                format!("allow UDP to {ns}, port 53"),
            ),
            Health::Lying => (
                "dns-nameserver-lying",
                if in_use {
                    Severity::Critical
                } else {
                    Severity::Warning
                },
                "Lying",
                "use another nameserver (dns.config.nameservers): this one returns answers for names that do not exist".to_owned(),
            ),
            Health::Incomplete if unknown_cluster => (
                "dns-cluster-unknown",
                Severity::Warning,
                "ClusterUnknown",
                "compare dns.cluster.domain and dns.cluster.nameservers with the infra cluster's".to_owned(),
            ),
            Health::Incomplete => ("dns-nameserver-incomplete", Severity::Warning, "Incomplete", dig),
            Health::Failing => ("dns-nameserver-failing", serious, "Failing", dig),
            Health::Looping => ("dns-loop", Severity::Critical, "Loop", OTHER_NAMESERVERS_REMEDY.to_owned()),
            Health::Dead => ("dns-nameserver-dead", serious, "Dead", reach),
        };
        let mut finding = nameserver(id, severity, ns, reason, format!("{ns} {}", sentence(judged)))
            .with("inUse", in_use)
            .remedy(remedy);
        if let Some(micros) = judged.micros {
            finding = finding.with("micros", micros);
        }
        Some(finding)
    }

    /// Finding for files of the agent that are not updated: they were written by a manual run, or
    /// before the settings were removed.
    fn unmaintained(&self) -> Option<Finding> {
        let ours = &self.state.ours;
        let wrong = self
            .plan
            .refusals
            .iter()
            .any(|one| one.kind == RefusalKind::Settings);
        if self.asked.manage != DnsManage::ReportOnly || ours.is_empty() || wrong {
            return None;
        }
        let severity = match self.state.standing {
            DnsStatus::Verified => Severity::Info,
            _ => Severity::Warning,
        };
        let message = "files of virtfleet-agent configure the resolver and are not updated, because dns.manage is report-only";
        Some(
            dns("dns-unmaintained", severity, "Unmaintained", message)
                .with("files", ours.join(" "))
                .remedy(
                    "set dns.manage: auto, or dns.manage: off, which restores the original configuration",
                ),
        )
    }

    /// Finding for a kubelet that still uses the configuration from its start.
    fn kubelet_waits(&self) -> Option<Finding> {
        let path = self.state.kubelet_waits_for.as_ref()?;
        let message =
            format!("kubelet reads {path} at its next start, and gives pods the old file until then");
        Some(
            dns("dns-kubelet-restart", Severity::Warning, "KubeletWaits", message)
                .with("file", path)
                .remedy("sudo systemctl restart kubelet"),
        )
    }

    fn standing(&self) -> Option<Finding> {
        let shown = |conf: &super::ResolvConf| conf.text("").trim_end().replace('\n', "; ");
        let (id, severity, reason, message, remedy) = match self.state.standing {
            DnsStatus::Broken if self.state.has_no_nameserver() => (
                "dns-broken",
                Severity::Warning,
                "NoNameserver",
                "no nameserver is in use, and none is handed out or set",
                "set dns.config.nameservers; in a guest that is to have none, dns.manage: off",
            ),
            DnsStatus::Broken if self.state.effective.nameservers.is_empty() => (
                "dns-broken",
                Severity::Critical,
                "NoNameserver",
                "no nameserver is in use",
                "sudo virtfleet-agent plan dns",
            ),
            DnsStatus::Broken => (
                "dns-broken",
                Severity::Critical,
                "NothingAnswers",
                "no nameserver in use answers",
                "sudo virtfleet-agent plan dns",
            ),
            DnsStatus::RolledBack => (
                "dns-rolled-back",
                Severity::Critical,
                "RolledBack",
                "the nameservers of the new configuration did not answer, and the old configuration was restored",
                "journalctl -b -u virtfleet-dns.service -u virtfleet-reconcile.service",
            ),
            // `dns-platform-fallback` reports this already, with its own reason.
            DnsStatus::Differs if self.plan.is_fallback() && self.plan.steps.is_empty() => return None,
            DnsStatus::Differs
                if self.plan.choice.is_some() && self.asked.manage == DnsManage::ReportOnly =>
            {
                (
                    "dns-differs",
                    Severity::Info,
                    "Differs",
                    "the DNS configuration in use is not the requested one, and dns.manage is report-only",
                    "sudo virtfleet-agent apply dns, or set dns.manage: auto",
                )
            }
            DnsStatus::Differs if self.plan.choice.is_some() => (
                "dns-differs",
                Severity::Warning,
                "Differs",
                "the DNS configuration in use is not the requested one",
                "sudo virtfleet-agent apply dns; if it does not help, another program configures the resolver: `virtfleet-agent dns` shows which",
            ),
            _ => return None,
        };
        let mut finding = dns(id, severity, reason, message)
            .with("inUse", shown(&self.state.effective))
            .with("asked", shown(&self.state.asked))
            .with("owner", &self.state.owner_because)
            .remedy(remedy);
        if let Some(error) = &self.state.error {
            finding = finding.with("error", error);
        }
        Some(finding)
    }
}

/// Describes the collision; the text follows the nameserver's address.
fn collides(kind: CollisionKind) -> &'static str {
    match kind {
        CollisionKind::NodeLocal => "is the address of the user cluster's NodeLocal DNS",
        CollisionKind::LocalAddress => "is an address of this guest",
        CollisionKind::ClusterDns => "is the user cluster's own DNS",
        CollisionKind::ServiceRange => "is in the user cluster's service range",
        CollisionKind::Stub => "is systemd-resolved itself, which would forward queries to itself",
    }
}

/// Finding for a nameserver that the platform still assigns: without the current settings it would
/// be used.
fn averted(one: &Collision) -> Finding {
    let id = if one.now {
        "dns-collision"
    } else {
        "dns-collision-predicted"
    };
    let message = format!(
        "{}, from {}, {}; averted: it is neither requested nor in use, but the platform still assigns it",
        one.nameserver,
        one.given_by,
        collides(one.kind)
    );
    nameserver(id, Severity::Info, one.nameserver, "Averted", message)
        .with("with", &one.with)
        .with("givenBy", &one.given_by)
        .with("inUse", false)
        .remedy(
            "none while the settings stay; configure the infra cluster to assign another nameserver to VMs",
        )
}

/// Describes the health; the text follows the nameserver's address.
fn sentence(judged: &Judged) -> String {
    match judged.health {
        Health::Dead => format!("does not answer: {}", judged.because),
        Health::Looping => format!("is a loop: {}", judged.because),
        Health::Slow => format!("is slow: {}", judged.because),
        _ => judged.because.clone(),
    }
}

fn trimmed(trimmed: &Trimmed) -> Finding {
    let (what, values) = match trimmed {
        Trimmed::Nameservers { values } => ("nameservers beyond the third", values.join(" ")),
        Trimmed::Searches { values } => (
            "search domains beyond the 32nd, or beyond 2048 characters",
            values.join(" "),
        ),
        Trimmed::LongSearch { value } => ("a search domain of more than 253 characters", value.clone()),
    };
    let subject = match trimmed {
        Trimmed::Nameservers { .. } => "nameservers",
        Trimmed::Searches { .. } => "searches",
        Trimmed::LongSearch { value } => value,
    };
    let mut finding = dns(
        "dns-trimmed",
        Severity::Warning,
        "Trimmed",
        format!("left out, as kubelet does: {what}"),
    )
    .with("values", values)
    .remedy("shorten dns.config, or the list that the platform assigns");
    subject.clone_into(&mut finding.subject.name);
    finding
}

fn warning(warning: &Warning, asked: &Asked) -> Finding {
    match warning {
        Warning::NoClusterDns => dns(
            "dns-no-cluster-dns",
            Severity::Warning,
            "NoClusterDns",
            "dns.policy is ClusterFirst and dns.cluster.nameservers is empty: Default is used, as kubelet does",
        )
        .remedy("set dns.cluster.nameservers, or dns.policy: Default"),
        Warning::BeyondKubevirtAdmission => dns(
            "dns-kubevirt-admission",
            Severity::Info,
            "BeyondKubevirtAdmission",
            "dns.config.searches has more than 6 domains or 256 characters: KubeVirt rejects such a list in a VM's spec.dnsConfig",
        )
        .with("searches", asked.searches.len())
        .remedy("keep it in the agent's settings, or shorten dns.config.searches"),
        Warning::BeyondOption119 => dns(
            "dns-option-119",
            Severity::Warning,
            "BeyondOption119",
            "the search domains take more than 255 bytes as DHCP option 119: virt-launcher fails if a pod's resolv.conf contains them",
        )
        .remedy("keep them out of the VM's dnsConfig and of the infra nodes' resolv.conf; shorten dns.config.searches"),
    }
}

#[cfg(test)]
mod tests;
