//! Content of all files that apply a choice to the resolver of the guest.

pub use super::our_file::OurFile;
pub(super) use super::our_file::{has_resolvectl, header};
use std::collections::BTreeSet;
// Writing to a string cannot fail, so the results are ignored.
use std::fmt::Write as _;

use super::{
    advice::Advice,
    asked::Asked,
    choice::Choice,
    inherited,
    kubelet::{drop_in, is_named_by_hand, kept_drop_in, kubelet_reads, reachable},
    names, ours,
    resolv::{self, ResolvConf},
    seen::{Link, Manager, Owner, Seen},
    split::{drop_in as drop_in_of_link, split_links},
};

/// Requested files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Files of the agent, in the order in which they are written.
    pub files: Vec<OurFile>,
    /// Content of `/etc/resolv.conf`, if the agent replaces it.
    pub resolv_conf: Option<String>,
    pub advice: Vec<Advice>,
}

/// Returns the files for a choice, by the owner of `/etc/resolv.conf` and the managers of the
/// links.
pub fn render(asked: &Asked, seen: &Seen, choice: &Choice) -> Rendered {
    let mut rendered = Rendered::default();
    let conf = choice.conf();
    match seen.owner {
        Owner::Resolved => {
            rendered.file(ours::RESOLVED, resolved(asked, seen, conf));
            rendered.links(seen);
            rendered.dhclient(seen);
            if !conf.options.is_empty() {
                rendered.advice.push(Advice::OptionsNotHonoured {
                    options: conf.option_words(),
                });
            }
        }
        Owner::NetworkManager => rendered.file(ours::NETWORK_MANAGER, network_manager(seen, conf)),
        Owner::Resolvconf => rendered.plain(conf),
        Owner::File => {
            rendered.plain(conf);
            rendered.dhclient(seen);
            let by_dhcpcd = |link: &&Link| link.given.iter().any(|given| given.path.contains("dhcpcd"));
            rendered
                .advice
                .extend(seen.links.iter().filter(by_dhcpcd).map(|link| Advice::Dhcpcd {
                    link: link.name.clone(),
                }));
        }
    }
    rendered.kubelet(seen, conf);
    rendered
}

/// Whether a drop-in of the agent stops systemd-resolved from using the link's own nameservers: not
/// where the link's `.network` file is not known.
fn is_configured(seen: &Seen, link: &Link) -> bool {
    let split = split_links(seen).any(|one| one.index == link.index);
    drop_in_of_link(link).is_some() && !split
}

/// Returns only kubelet's files, for a guest that is as requested without the agent.
pub(super) fn kubelets(seen: &Seen, choice: &Choice) -> Rendered {
    let mut rendered = Rendered::default();
    rendered.kubelet(seen, choice.conf());
    rendered
}

impl Rendered {
    fn file(&mut self, path: &str, text: String) {
        self.files.push(OurFile {
            path: path.to_owned(),
            text,
            mode: 0o644,
        });
    }

    fn plain(&mut self, conf: &ResolvConf) {
        self.resolv_conf = Some(conf.text(&header()));
        self.for_kubelet(conf);
    }

    /// Adds kubelet's drop-in, and the file that kubelet reads.
    fn kubelet(&mut self, seen: &Seen, conf: &ResolvConf) {
        // Use the state after the plan, not the current one.
        let mut after = seen.clone();
        if let Some(text) = &self.resolv_conf {
            after.resolv_conf.text = Some(text.clone());
        } else if let Some(original) = seen
            .original
            .as_ref()
            .filter(|_| ours::taken_over(&seen.resolv_conf))
        {
            after.resolv_conf = original.clone();
        }
        let changed = |file: &OurFile| seen.files.get(&file.path) != Some(&file.text);
        if seen.owner == Owner::Resolved && self.files.iter().any(changed) {
            // systemd-resolved will list the chosen nameservers, and those of links that the agent
            // does not configure.
            let mut listed = conf.clone();
            let others = seen.links.iter().filter(|link| !is_configured(seen, link));
            for given in others.flat_map(|link| &link.given) {
                listed.append(&given.conf);
            }
            let text = seen.upstreams.as_ref().map(|_| listed.text(""));
            if after.resolv_conf.text == after.upstreams {
                after.resolv_conf.text.clone_from(&text);
            }
            after.upstreams = text;
        }
        let drop_in = kept_drop_in(seen, conf).or_else(|| drop_in(&after, conf));
        let named = is_named_by_hand(&after, conf)
            || drop_in
                .as_ref()
                .is_some_and(|file| file.text.contains(ours::FOR_KUBELET));
        let reads = named || kubelet_reads(seen);
        if reads && self.resolv_conf.is_none() {
            self.for_kubelet(conf);
        }
        let has = self.files.iter().any(|file| file.path == ours::FOR_KUBELET);
        if let Some(text) = seen.files.get(ours::FOR_KUBELET).filter(|_| reads && !has) {
            // No chosen nameserver is reachable from pods, but kubelet reads the file: keep its
            // content, which is better than no file.
            self.file(ours::FOR_KUBELET, text.clone());
        }
        let later = drop_in
            .as_ref()
            .is_some_and(|file| !settled(seen, &self.files, file));
        self.files.extend(drop_in.filter(|_| !later));
    }

    fn for_kubelet(&mut self, conf: &ResolvConf) {
        let reachable = reachable(conf);
        if !reachable.nameservers.is_empty() {
            self.file(ours::FOR_KUBELET, reachable.text(&header()));
        }
    }

    fn dhclient(&mut self, seen: &Seen) {
        let leased = |link: &Link| link.given.iter().any(|given| given.path.contains("dhclient"));
        if seen.links.iter().any(leased) {
            self.file(ours::DHCLIENT, dhclient_hook());
        }
    }

    /// Adds the files that stop systemd-resolved from using the links' own nameservers.
    fn links(&mut self, seen: &Seen) {
        let mut done = BTreeSet::new();
        for link in seen.links.iter().filter(|link| is_configured(seen, link)) {
            let path = link.profile.as_deref().and_then(ours::networkd_drop_in);
            if let Some(path) = path.filter(|path| done.insert(path.clone())) {
                self.file(&path, networkd(seen, link));
            }
        }
        self.kept(seen);
        let by_nm: Vec<String> = seen
            .links
            .iter()
            .filter(|link| link.manager == Manager::NetworkManager)
            .map(|link| link.name.clone())
            .collect();
        if !by_nm.is_empty() {
            let text = header() + ours::NETWORK_MANAGER_DNS_OFF;
            self.file(ours::NETWORK_MANAGER, text);
            if !has_resolvectl(seen) {
                self.advice.push(Advice::NetworkManagerLinks { links: by_nm });
            }
        } else if let Some(text) = seen.files.get(ours::NETWORK_MANAGER)
            && ours::is_ours(text)
            && text.ends_with(ours::NETWORK_MANAGER_DNS_OFF)
            && !seen.missing_tools.iter().any(|tool| tool == "nmcli")
        {
            // NetworkManager has no link at the moment.
            self.file(ours::NETWORK_MANAGER, text.clone());
        }
    }

    /// Adds drop-ins of `.network` files that no link has at the moment, for example while networkd
    /// restarts or a link is down. They stay as long as the `.network` file.
    fn kept(&mut self, seen: &Seen) {
        let mut done: BTreeSet<String> = self.files.iter().map(|file| file.path.clone()).collect();
        done.extend(split_links(seen).filter_map(drop_in_of_link));
        for profile in &seen.profiles {
            let Some(path) = ours::networkd_drop_in(profile).filter(|path| !done.contains(path)) else {
                continue;
            };
            if let Some(text) = seen.files.get(&path).filter(|text| ours::is_ours(text)) {
                self.file(&path, text.clone());
            }
        }
    }
}

/// Whether NetworkManager has loaded the agent's configuration: `/etc/resolv.conf` shows its
/// dnsmasq or the nameservers. Only then kubelet is configured.
fn settled(seen: &Seen, files: &[OurFile], drop_in: &OurFile) -> bool {
    let by_nm = files.iter().find(|file| file.path == ours::NETWORK_MANAGER);
    let same = |file: &OurFile| seen.files.get(&file.path) == Some(&file.text);
    seen.owner != Owner::NetworkManager || seen.files.contains_key(&drop_in.path) || by_nm.is_none_or(same)
}

/// Returns the `# Platform:` line with values that no other file in the guest has, or nothing.
fn platform_line(seen: &Seen) -> String {
    let Some(kept) = inherited::to_be_kept(seen) else {
        return String::new();
    };
    let servers = kept.shown_nameservers().join(" ");
    format!("{} {servers}; {}\n", ours::PLATFORM, kept.searches.join(" "))
}

/// Content of systemd-resolved's drop-in. Empty values clear those of others. `~.` routes all names
/// to the agent's nameservers that no other link claims, including names below `.local`. If the
/// cluster's domain is below `.local`, it is named explicitly, so that no other link's `~.` gets
/// it.
fn resolved(asked: &Asked, seen: &Seen, conf: &ResolvConf) -> String {
    let mut domains: Vec<String> = conf.searches.iter().filter(|one| *one != ".").cloned().collect();
    let domain = asked.cluster_domain.as_str();
    let covered = domains.iter().any(|search| names::below(domain, search));
    if !domain.is_empty() && names::below(domain, "local") && !covered {
        domains.push(format!("~{domain}"));
    }
    domains.push("~.".to_owned());
    let mut text = header() + &platform_line(seen);
    let servers = conf.shown_nameservers().join(" ");
    write!(
        text,
        "[Resolve]\nDNS=\nDNS={servers}\nFallbackDNS=\nDomains=\nDomains={}\n",
        domains.join(" ")
    )
    .ok();
    text
}

/// Content of a drop-in of a link's `.network` file, also of one that netplan generated. It does
/// not depend on netplan's files, and networkd reads it at each start.
fn networkd(seen: &Seen, link: &Link) -> String {
    let mut text = header();
    // Clear the nameservers of the link's own file. Once cleared, they are cleared in every later
    // run: they may not be visible any more.
    let reset = "[Network]\nDNS=\nDomains=\n\n";
    let before = link
        .profile
        .as_deref()
        .and_then(ours::networkd_drop_in)
        .and_then(|path| seen.files.get(&path));
    let fixed = |link: &Link| {
        let named = |given: &super::seen::Given| {
            given.source == super::seen::Source::Static && !given.conf.nameservers.is_empty()
        };
        link.given.iter().any(named)
    };
    let same_file = |other: &&Link| other.profile == link.profile;
    if seen.links.iter().filter(same_file).any(fixed)
        || before.is_some_and(|text| ours::is_ours(text) && text.contains(reset))
    {
        text += reset;
    }
    let mut sections = ["DHCPv4", "DHCPv6", "IPv6AcceptRA"]
        .map(|section| format!("[{section}]\nUseDNS=no\nUseDomains=no\n"));
    // Without UseDomains networkd does not request search domains (option 119), and the next lease
    // would not have the platform's. If they were not requested before, the agent does not request
    // them either: they would appear as new in the next run.
    let request = "RequestOptions=119\n";
    let listed = |link: &Link| link.given.iter().any(|given| given.search_list);
    if seen.links.iter().filter(same_file).any(listed)
        || before.is_some_and(|text| ours::is_ours(text) && text.contains(request))
    {
        sections[0].push_str(request);
    }
    text + &sections.join("\n")
}

/// Content of NetworkManager's global DNS configuration, which overrides that of every connection.
fn network_manager(seen: &Seen, conf: &ResolvConf) -> String {
    let mut text = header() + &platform_line(seen) + "[global-dns]\n";
    let searches: Vec<&str> = conf
        .searches
        .iter()
        .map(String::as_str)
        .filter(|one| *one != ".")
        .collect();
    if !searches.is_empty() {
        writeln!(text, "searches={}", searches.join(",")).ok();
    }
    if !conf.options.is_empty() {
        let words: Vec<String> = conf.options.iter().map(resolv::option_word).collect();
        writeln!(text, "options={}", words.join(",")).ok();
    }
    let servers = conf.shown_nameservers().join(",");
    write!(text, "\n[global-dns-domain-*]\nservers={servers}\n").ok();
    text
}

/// Content of the hook that dhclient's script sources. It does nothing once the agent's files are
/// removed, so a guest without the agent gets its nameservers from DHCP again.
fn dhclient_hook() -> String {
    format!(
        "{}if grep -qs '^{}' {} {}; then\n\tmake_resolv_conf() {{ :; }}\nfi\n",
        header(),
        ours::MARK,
        ours::RESOLV_CONF,
        ours::RESOLVED,
    )
}

#[cfg(test)]
mod tests;
