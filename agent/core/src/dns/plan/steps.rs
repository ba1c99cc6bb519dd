//! From what is there to what is to be there, in an order in which each moment in between resolves.

use super::{Service, Step};
use crate::dns::{
    advice::Advice,
    ours,
    render::{OurFile, Rendered, has_resolvectl},
    resolv::ResolvConf,
    seen::{File, Link, Manager, Owner, Seen},
};

/// In the order in which they take up what is new: systemd-resolved gets its servers before the links lose theirs.
const ORDER: [Service; 3] = [Service::Resolved, Service::Networkd, Service::NetworkManager];

/// Who reads a file of ours; none when nobody has to be told.
pub(super) fn reader(path: &str) -> Option<Service> {
    match path {
        ours::RESOLVED => Some(Service::Resolved),
        ours::NETWORK_MANAGER => Some(Service::NetworkManager),
        _ if path.starts_with(ours::NETWORKD) => Some(Service::Networkd),
        _ => None,
    }
}

/// The steps. New configuration is written and taken up first, reader by reader, then `/etc/resolv.conf`; what is of no use any more goes last, in the opposite order.
pub(super) fn steps(seen: &Seen, rendered: &Rendered) -> (Vec<Step>, Option<Advice>) {
    let mut work = Work {
        seen,
        rendered,
        steps: Vec::new(),
    };
    for service in ORDER {
        if work.has(Some(service)) {
            work.write(Some(service));
            work.remove(Some(service));
        }
    }
    work.revert();
    work.quiet();
    work.write(None);
    let advice = work.resolv_conf();
    work.speak();
    for service in ORDER.into_iter().rev() {
        if !work.has(Some(service)) {
            work.remove(Some(service));
        }
    }
    work.remove(None);
    work.forget();
    if seen.resolved.is_some() && !work.steps.iter().all(Step::is_kubelets) {
        work.steps.push(Step::Flush);
    }
    (work.steps, advice)
}

struct Work<'a> {
    seen: &'a Seen,
    rendered: &'a Rendered,
    steps: Vec<Step>,
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
        let steps: Vec<Step> = self
            .wanted(service)
            .filter(differs)
            .map(|file| Step::WriteFile {
                path: file.path.clone(),
                text: file.text.clone(),
                mode: file.mode,
            })
            .collect();
        self.then(steps, service);
    }

    fn remove(&mut self, service: Option<Service>) {
        let steps: Vec<Step> = ours::files(self.seen)
            .map(|(path, _)| path)
            .filter(|path| reader(path) == service)
            .filter(|path| !self.rendered.files.iter().any(|file| file.path == **path))
            .map(|path| Step::RemoveFile {
                path: path.to_owned(),
            })
            .collect();
        self.then(steps, service);
    }

    /// The steps and, once for all that came before, the reload.
    fn then(&mut self, steps: Vec<Step>, service: Option<Service>) {
        if steps.is_empty() {
            return;
        }
        let configures_links = service == Some(Service::Networkd);
        let reload = service
            .filter(|_| !(configures_links && self.seen.live.is_some()))
            .map(|service| Step::Reload { service });
        if reload.is_some() && self.steps.last() == reload.as_ref() {
            self.steps.pop();
        }
        self.steps.extend(steps);
        self.steps.extend(reload);
    }

    /// Once NetworkManager keeps its servers to itself, those that it had told systemd-resolved before.
    fn revert(&mut self) {
        let reload = Step::Reload {
            service: Service::NetworkManager,
        };
        let told = self.seen.owner == Owner::Resolved && self.steps.last() == Some(&reload);
        let by_nm = |link: &&Link| link.manager == Manager::NetworkManager;
        if told && has_resolvectl(self.seen) {
            let links = self.seen.links.iter().filter(by_nm);
            self.steps.extend(links.map(|link| Step::Revert {
                link: link.name.clone(),
            }));
        }
    }

    /// Links that would be told, beside ours, what they were given: at run time, where no reload does it.
    fn quiet(&mut self) {
        if self.steps.iter().any(reads_links) || (self.seen.live.is_none() && !has_resolvectl(self.seen)) {
            return;
        }
        let live = self.seen.live.is_some();
        let speaks = |link: &&Link| {
            let told = !link.told.nameservers.is_empty() || !link.told.searches.is_empty();
            self.covers(link) && (told || (live && !covered(self.seen, link)))
        };
        let links = self.seen.links.iter().filter(speaks);
        let steps: Vec<Step> = links
            .map(|link| Step::Quiet {
                link: link.name.clone(),
            })
            .collect();
        self.steps.extend(steps);
    }

    /// What networkd was told of a link at run time outlasts its reload, and is forgotten with it.
    fn forget(&mut self) {
        if !has_resolvectl(self.seen) {
            return;
        }
        let links = self.seen.links.iter();
        let ours = links.filter(|link| covered(self.seen, link) || self.covers(link));
        let forget: Vec<Step> = ours
            .map(|link| Step::Revert {
                link: link.name.clone(),
            })
            .collect();
        let mut steps = Vec::new();
        for step in self.steps.drain(..) {
            let configured = reads_links(&step);
            steps.push(step);
            if configured {
                steps.extend(forget.iter().cloned());
            }
        }
        self.steps = steps;
    }

    /// Links that have their own again, before systemd-resolved forgets ours.
    fn speak(&mut self) {
        let given_back =
            |link: &&Link| self.seen.live.is_some() && covered(self.seen, link) && !self.covers(link);
        let steps: Vec<Step> = self.seen.links.iter().filter(given_back).map(speak).collect();
        self.steps.extend(steps);
    }

    /// Whether a file of ours is to keep what the link was given from counting.
    fn covers(&self, link: &Link) -> bool {
        let text = |path: &str| {
            let files = &self.rendered.files;
            files
                .iter()
                .find(|file| file.path == path)
                .map(|file| file.text.as_str())
        };
        covers(link, text)
    }

    fn resolv_conf(&mut self) -> Option<Advice> {
        let now = &self.seen.resolv_conf;
        match &self.rendered.resolv_conf {
            Some(text) if now.link.is_some() || now.text.as_ref() != Some(text) => {
                self.steps.push(Step::TakeOver { text: text.clone() });
            }
            None if ours::taken_over(now) => match &self.seen.original {
                Some(original) => self.give_back(original.clone()),
                None => return Some(Advice::OriginalLost),
            },
            _ => {}
        }
        None
    }

    fn give_back(&mut self, original: File) {
        let generated = original
            .link
            .as_deref()
            .is_some_and(|link| link.contains("resolvconf"));
        self.steps.push(Step::GiveBack { original });
        if generated {
            self.steps.push(Step::Reload {
                service: Service::Resolvconf,
            });
        }
    }
}

/// Whether a file of ours keeps it from counting now.
fn covered(seen: &Seen, link: &Link) -> bool {
    covers(link, |path| {
        let text = seen.files.get(path).map(String::as_str);
        text.filter(|text| ours::is_ours(text))
    })
}

fn covers<'a>(link: &Link, text: impl Fn(&str) -> Option<&'a str>) -> bool {
    let drop_in = link.profile.as_deref().and_then(ours::networkd_drop_in);
    link.manager == Manager::Networkd && drop_in.is_some_and(|path| text(&path).is_some())
}

fn speak(link: &Link) -> Step {
    let mut given = ResolvConf::default();
    link.given.iter().for_each(|one| given.append(&one.conf));
    let routes = link.routes.iter().map(|domain| format!("~{domain}"));
    Step::Speak {
        link: link.name.clone(),
        nameservers: given.shown_nameservers(),
        searches: given.searches.into_iter().chain(routes).collect(),
    }
}

/// Whether networkd reads its files.
fn reads_links(step: &Step) -> bool {
    matches!(
        step,
        Step::Reload {
            service: Service::Networkd
        }
    )
}
