//! Computes the steps from the current to the requested state. Names resolve after each step.

use super::{DnsStep, Service};
use crate::dns::{
    advice::Advice,
    ours,
    render::{OurFile, Rendered, has_resolvectl},
    resolv::ResolvConf,
    seen::{File, Link, Manager, Owner, Seen},
};

/// Order in which services receive new configuration: systemd-resolved gets its nameservers before
/// the links lose theirs.
const SERVICE_ORDER: [Service; 3] = [Service::Resolved, Service::Networkd, Service::NetworkManager];

/// Returns the service that reads a file of the agent; `None` if no service needs a reload.
pub(super) fn reader(path: &str) -> Option<Service> {
    match path {
        ours::RESOLVED => Some(Service::Resolved),
        ours::NETWORK_MANAGER => Some(Service::NetworkManager),
        _ if path.starts_with(ours::NETWORKD) => Some(Service::Networkd),
        _ => None,
    }
}

/// Returns the steps. They write and reload new configuration first, service by service, then
/// `/etc/resolv.conf`; they remove old files last, in reverse order.
pub(super) fn steps(seen: &Seen, rendered: &Rendered) -> (Vec<DnsStep>, Option<Advice>) {
    let mut work = Work {
        seen,
        rendered,
        steps: Vec::new(),
    };
    for service in SERVICE_ORDER {
        if work.has(Some(service)) {
            work.write(Some(service));
            work.remove(Some(service));
        }
    }
    work.revert_network_manager();
    work.suppress_links();
    work.write(None);
    let advice = work.resolv_conf();
    work.restore_links();
    for service in SERVICE_ORDER.into_iter().rev() {
        if !work.has(Some(service)) {
            work.remove(Some(service));
        }
    }
    work.remove(None);
    work.revert_after_reload();
    if seen.resolved.is_some() && !work.steps.iter().all(DnsStep::is_kubelets) {
        work.steps.push(DnsStep::Flush);
    }
    (work.steps, advice)
}

struct Work<'a> {
    seen: &'a Seen,
    rendered: &'a Rendered,
    steps: Vec<DnsStep>,
}

impl Work<'_> {
    fn wanted(&self, service: Option<Service>) -> impl Iterator<Item = &OurFile> {
        self.rendered
            .files
            .iter()
            .filter(move |file| reader(&file.path) == service)
    }

    fn has(&self, service: Option<Service>) -> bool {
        self.wanted(service).next().is_some()
    }

    fn write(&mut self, service: Option<Service>) {
        let differs = |file: &&OurFile| self.seen.files.get(&file.path) != Some(&file.text);
        let steps: Vec<DnsStep> = self
            .wanted(service)
            .filter(differs)
            .map(|file| DnsStep::WriteFile {
                path: file.path.clone(),
                text: file.text.clone(),
                mode: file.mode,
            })
            .collect();
        self.then(steps, service);
    }

    fn remove(&mut self, service: Option<Service>) {
        let steps: Vec<DnsStep> = ours::files(self.seen)
            .map(|(path, _)| path)
            .filter(|path| reader(path) == service)
            .filter(|path| !self.rendered.files.iter().any(|file| file.path == **path))
            .map(|path| DnsStep::RemoveFile {
                path: path.to_owned(),
            })
            .collect();
        self.then(steps, service);
    }

    /// Appends the steps, then one reload for all steps of the service.
    fn then(&mut self, steps: Vec<DnsStep>, service: Option<Service>) {
        if steps.is_empty() {
            return;
        }
        let configures_links = service == Some(Service::Networkd);
        let reload = service
            .filter(|_| !(configures_links && self.seen.live.is_some()))
            .map(|service| DnsStep::Reload { service });
        if reload.is_some() && self.steps.last() == reload.as_ref() {
            self.steps.pop();
        }
        self.steps.extend(steps);
        self.steps.extend(reload);
    }

    /// After NetworkManager stopped passing its nameservers on, removes those that it had set in
    /// systemd-resolved before.
    fn revert_network_manager(&mut self) {
        let reload = DnsStep::Reload {
            service: Service::NetworkManager,
        };
        let told = self.seen.owner == Owner::Resolved && self.steps.last() == Some(&reload);
        let by_nm = |link: &&Link| link.manager == Manager::NetworkManager;
        if told && has_resolvectl(self.seen) {
            let links = self.seen.links.iter().filter(by_nm);
            self.steps.extend(links.map(|link| DnsStep::Revert {
                link: link.name.clone(),
            }));
        }
    }

    /// Stops links at run time from passing on assigned nameservers beside the agent's, where no
    /// reload does it.
    fn suppress_links(&mut self) {
        if self.steps.iter().any(reads_links) || (self.seen.live.is_none() && !has_resolvectl(self.seen)) {
            return;
        }
        let live = self.seen.live.is_some();
        let speaks = |link: &&Link| {
            let told = !link.told.nameservers.is_empty() || !link.told.searches.is_empty();
            self.suppresses(link) && (told || (live && !is_suppressed(self.seen, link)))
        };
        let links = self.seen.links.iter().filter(speaks);
        let steps: Vec<DnsStep> = links
            .map(|link| DnsStep::SuppressLink {
                link: link.name.clone(),
            })
            .collect();
        self.steps.extend(steps);
    }

    /// What was set on a link at run time survives a reload of networkd, so revert it after the
    /// reload.
    fn revert_after_reload(&mut self) {
        if !has_resolvectl(self.seen) {
            return;
        }
        let links = self.seen.links.iter();
        let ours = links.filter(|link| is_suppressed(self.seen, link) || self.suppresses(link));
        let revert_after_reload: Vec<DnsStep> = ours
            .map(|link| DnsStep::Revert {
                link: link.name.clone(),
            })
            .collect();
        let mut steps = Vec::new();
        for step in self.steps.drain(..) {
            let configured = reads_links(&step);
            steps.push(step);
            if configured {
                steps.extend(revert_after_reload.iter().cloned());
            }
        }
        self.steps = steps;
    }

    /// Restores the nameservers of links before systemd-resolved loses the agent's.
    fn restore_links(&mut self) {
        let given_back = |link: &&Link| {
            self.seen.live.is_some() && is_suppressed(self.seen, link) && !self.suppresses(link)
        };
        let steps: Vec<DnsStep> = self
            .seen
            .links
            .iter()
            .filter(given_back)
            .map(restore_link)
            .collect();
        self.steps.extend(steps);
    }

    /// Whether the rendered files suppress the link's assigned nameservers.
    fn suppresses(&self, link: &Link) -> bool {
        let text = |path: &str| {
            let files = &self.rendered.files;
            files
                .iter()
                .find(|file| file.path == path)
                .map(|file| file.text.as_str())
        };
        suppresses(link, text)
    }

    fn resolv_conf(&mut self) -> Option<Advice> {
        let now = &self.seen.resolv_conf;
        match &self.rendered.resolv_conf {
            Some(text) if now.link.is_some() || now.text.as_ref() != Some(text) => {
                self.steps.push(DnsStep::ReplaceResolvConf { text: text.clone() });
            }
            None if ours::taken_over(now) => match &self.seen.original {
                Some(original) => self.restore_resolv_conf(original.clone()),
                None => return Some(Advice::OriginalLost),
            },
            _ => {}
        }
        None
    }

    fn restore_resolv_conf(&mut self, original: File) {
        let generated = original
            .link
            .as_deref()
            .is_some_and(|link| link.contains("resolvconf"));
        self.steps.push(DnsStep::RestoreResolvConf { original });
        if generated {
            self.steps.push(DnsStep::Reload {
                service: Service::Resolvconf,
            });
        }
    }
}

/// Whether the current files of the agent suppress the link's assigned nameservers.
fn is_suppressed(seen: &Seen, link: &Link) -> bool {
    suppresses(link, |path| {
        let text = seen.files.get(path).map(String::as_str);
        text.filter(|text| ours::is_ours(text))
    })
}

fn suppresses<'a>(link: &Link, text: impl Fn(&str) -> Option<&'a str>) -> bool {
    let drop_in = link.profile.as_deref().and_then(ours::networkd_drop_in);
    link.manager == Manager::Networkd && drop_in.is_some_and(|path| text(&path).is_some())
}

fn restore_link(link: &Link) -> DnsStep {
    let mut given = ResolvConf::default();
    link.given.iter().for_each(|one| given.append(&one.conf));
    let routes = link.routes.iter().map(|domain| format!("~{domain}"));
    DnsStep::RestoreLink {
        link: link.name.clone(),
        nameservers: given.shown_nameservers(),
        searches: given.searches.into_iter().chain(routes).collect(),
    }
}

/// Whether networkd reads its files in this step.
fn reads_links(step: &DnsStep) -> bool {
    matches!(
        step,
        DnsStep::Reload {
            service: Service::Networkd
        }
    )
}
