//! Kubelet's resolver configuration: the file that it gives to pods, whether pods can use it, and
//! how to configure another one.

use std::net::IpAddr;

use super::{
    advice::{Advice, UPSTREAMS},
    answers::Judged,
    choice::Choice,
    collision::Collision,
    effective::effective,
    merge::limits,
    ours,
    render::{OurFile, header},
    resolv::{self, ResolvConf},
    seen::{Kubelet, Owner, Seen},
};

/// Stub file of systemd-resolved.
const STUB: &str = "/run/systemd/resolve/stub-resolv.conf";
/// Description of a suitable file, if there is none.
const SUITABLE_FILE: &str = "a file with nameservers that pods reach";

/// Whether kubelet gives the agent's file to pods, or may do so because it started with that
/// configuration. Then the file stays in every mode: kubelet starts no pod without it.
pub fn kubelet_reads(seen: &Seen) -> bool {
    let there = seen.files.contains_key(ours::FOR_KUBELET);
    let kubelet = seen.kubelet.as_ref();
    kubelet.is_some_and(|kubelet| {
        kubelet.resolv_conf.as_deref() == Some(ours::FOR_KUBELET)
            || (there && (kubelet.started_ns.is_some() || folder_unknown(kubelet)))
    })
}

/// Whether kubelet's flags may still name a folder of drop-ins: kubelet does not run, as at boot,
/// and the file of its flags is not always known.
fn folder_unknown(kubelet: &Kubelet) -> bool {
    kubelet.config_dir.is_none() && kubelet.started_ns.is_none()
}

/// Returns the file that kubelet reads if it is missing or outdated. The agent maintains it in
/// every mode, since kubelet starts no pod without it. Its content is the choice, else the last
/// verified configuration, else the one in use; nameservers that answer come first. Nameservers
/// that pods cannot reach are left out, and colliding ones if there are others. `None` if the file
/// is up to date or not read, or if no nameserver is known.
pub fn for_kubelet(
    seen: &Seen,
    choice: Option<&Choice>,
    collisions: &[Collision],
    judged: &[Judged],
) -> Option<OurFile> {
    if !kubelet_reads(seen) {
        return None;
    }
    file_for_pods(seen, &for_pods(seen, choice, collisions, judged)?)
}

/// Returns the agent's file with these nameservers as far as pods reach them; `None` if it is up to
/// date, or somebody else's.
pub(super) fn file_for_pods(seen: &Seen, conf: &ResolvConf) -> Option<OurFile> {
    let there = seen.files.get(ours::FOR_KUBELET);
    if there.is_some_and(|text| !ours::is_ours(text)) {
        return None;
    }
    let text = reachable(conf).text(&header());
    (there != Some(&text)).then(|| OurFile {
        path: ours::FOR_KUBELET.to_owned(),
        text,
        mode: 0o644,
    })
}

/// Content of the agent's file; `None` if no nameserver is known that pods reach.
pub(super) fn for_pods(
    seen: &Seen,
    choice: Option<&Choice>,
    collisions: &[Collision],
    judged: &[Judged],
) -> Option<ResolvConf> {
    let now = effective(seen);
    let known = [choice.map(Choice::conf), seen.last_good.as_ref(), Some(&now)];
    let any: Vec<ResolvConf> = known.iter().flatten().map(|conf| reachable(conf)).collect();
    let collides = |one: &IpAddr| collisions.iter().any(|other| other.nameserver == *one);
    let best = any.iter().map(|conf| {
        let mut conf = conf.clone();
        conf.nameservers.retain(|one| !collides(one));
        conf
    });
    let best: Vec<ResolvConf> = best.filter(|conf| !conf.nameservers.is_empty()).collect();
    let answers = |conf: &&ResolvConf| {
        let good = |one: &Judged| one.health.is_usable() && conf.nameservers.contains(&one.nameserver);
        judged.iter().any(good)
    };
    let alone = || any.iter().find(|conf| !conf.nameservers.is_empty());
    best.iter().find(answers).or(best.first()).or_else(alone).cloned()
}

/// Removes nameservers that pods cannot reach: loopback addresses and interface scopes are
/// different in a pod.
pub(super) fn reachable(conf: &ResolvConf) -> ResolvConf {
    let mut conf = conf.clone();
    conf.nameservers.retain(is_reachable);
    conf.zones.clear();
    conf
}

fn is_reachable(nameserver: &IpAddr) -> bool {
    let link_local = matches!(nameserver, IpAddr::V6(one) if one.is_unicast_link_local());
    !nameserver.is_loopback() && !link_local
}

/// Whether kubelet gives nameservers to pods from a file, and pods reach all of them.
fn usable(text: Option<&str>) -> bool {
    let conf = text.map(resolv::parse).unwrap_or_default();
    !conf.nameservers.is_empty() && unreachable(text).is_empty()
}

/// Nameservers that kubelet gives to pods from a file, and that pods cannot reach.
fn unreachable(text: Option<&str>) -> Vec<String> {
    let conf = text.map(resolv::parse).unwrap_or_default();
    let given = conf.nameservers.iter().take(limits::NAMESERVERS);
    given
        .filter(|one| !is_reachable(one))
        .map(|one| conf.shown(*one))
        .collect()
}

/// Returns the agent's drop-in of kubelet's configuration, if kubelet reads drop-ins and would
/// otherwise give an unusable file to pods. `None` if a flag sets `resolvConf`, because flags
/// override drop-ins.
pub(super) fn drop_in(seen: &Seen, conf: &ResolvConf) -> Option<OurFile> {
    let kubelet = seen.kubelet.as_ref().filter(|kubelet| !kubelet.by_flag)?;
    let Some(path) = ours::kubelet_drop_in(kubelet) else {
        // Keep the existing drop-in until it is known whether kubelet reads it.
        let mut files = ours::files(seen).filter(|_| folder_unknown(kubelet));
        let (path, text) = files.find(|(path, _)| ours::is_kubelet_drop_in(path))?;
        return Some(OurFile {
            path: path.to_owned(),
            text: text.to_owned(),
            mode: 0o644,
        });
    };
    let (_, instead) = wrong(seen, kubelet, kubelet.others.as_deref(), conf)?;
    (instead != SUITABLE_FILE).then(|| drop_in_file(path, &instead))
}

fn drop_in_file(path: String, resolv_conf: &str) -> OurFile {
    OurFile {
        path,
        text: format!(
            "{}apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{}",
            header(),
            resolv_conf_line(resolv_conf)
        ),
        mode: 0o644,
    }
}

fn resolv_conf_line(file: &str) -> String {
    format!("resolvConf: {file}\n")
}

/// Returns the agent's drop-in that names the agent's file, while a nameserver is known that pods
/// cannot reach. It may be among the first three at any time, and each change of the drop-in needs
/// a restart of kubelet. `None` if kubelet otherwise reads a file that is not the guest's.
pub(super) fn kept_drop_in(seen: &Seen, conf: &ResolvConf) -> Option<OurFile> {
    let kubelet = seen.kubelet.as_ref().filter(|kubelet| !kubelet.by_flag)?;
    let path = ours::kubelet_drop_in(kubelet)?;
    let text = seen.files.get(&path).filter(|text| ours::is_ours(text))?;
    let guests = matches!(
        kubelet.others.as_deref().unwrap_or(ours::RESOLV_CONF),
        ours::RESOLV_CONF | UPSTREAMS | STUB
    );
    if !guests || !text.ends_with(&resolv_conf_line(ours::FOR_KUBELET)) {
        return None;
    }
    let mut known = effective(seen);
    known.append(conf);
    if seen.owner == Owner::Resolved {
        known.append(&resolv::parse(seen.upstreams.as_deref().unwrap_or_default()));
    }
    let given = seen.links.iter().flat_map(|link| &link.given);
    given.for_each(|one| known.append(&one.conf));
    let lost = known.nameservers.iter().any(|one| !is_reachable(one));
    // kubelet starts no pod without the file.
    let file = seen.files.contains_key(ours::FOR_KUBELET) || !reachable(conf).nameservers.is_empty();
    (lost && file).then(|| drop_in_file(path, ours::FOR_KUBELET))
}

/// Whether the advice tells the admin to configure the agent's file, because the agent's drop-in
/// cannot do so. The file must exist then.
pub(super) fn is_named_by_hand(seen: &Seen, conf: &ResolvConf) -> bool {
    seen.kubelet.as_ref().is_some_and(|kubelet| {
        let by_drop_in = ours::kubelet_drop_in(kubelet)
            .is_some_and(|path| !kubelet.by_flag && !is_overridden(seen, kubelet, &path));
        let found = wrong(seen, kubelet, kubelet.resolv_conf.as_deref(), conf);
        !by_drop_in && found.is_some_and(|(_, instead)| instead == ours::FOR_KUBELET)
    })
}

/// Whether a file of kubelet's configuration after the drop-in sets another `resolvConf`.
fn is_overridden(seen: &Seen, kubelet: &Kubelet, path: &str) -> bool {
    let line = resolv_conf_line(kubelet.resolv_conf.as_deref().unwrap_or_default());
    let in_effect = |text: &String| ours::is_ours(text) && text.ends_with(&line);
    seen.files.get(path).is_some_and(|text| !in_effect(text))
}

/// Returns the advice about kubelet's configuration.
pub(super) fn advice(seen: &Seen, chosen: &ResolvConf) -> Option<Advice> {
    let kubelet = seen.kubelet.as_ref()?;
    if kubelet.resolv_conf.as_deref() == Some(ours::FOR_KUBELET)
        && !seen.files.contains_key(ours::FOR_KUBELET)
    {
        let config = kubelet.path.clone();
        return Some(Advice::KubeletFileMissing { config });
    }
    let (because, instead) = wrong(seen, kubelet, kubelet.resolv_conf.as_deref(), chosen)?;
    Some(Advice::KubeletResolvConf {
        config: kubelet.path.clone(),
        reads: kubelet
            .resolv_conf
            .clone()
            .unwrap_or(ours::RESOLV_CONF.to_owned()),
        because,
        how: how(seen, kubelet, &instead),
        instead,
    })
}

/// Describes the change: the file or flag, and the line.
fn how(seen: &Seen, kubelet: &Kubelet, instead: &str) -> String {
    let restart = "and restart kubelet: sudo systemctl restart kubelet";
    if kubelet.by_flag {
        let place = kubelet.flag_in.as_deref().unwrap_or("kubelet's command line");
        return format!(
            "set --resolv-conf={instead} in {place}, since a flag overrides every file, {restart}"
        );
    }
    match (ours::kubelet_drop_in(kubelet), &kubelet.config) {
        (Some(path), _) if is_overridden(seen, kubelet, &path) => {
            format!("{path} is overridden: remove resolvConf from the files after it, {restart}")
        }
        (Some(path), _) if instead != SUITABLE_FILE => {
            format!(
                "sudo virtfleet-agent apply dns, or dns.manage: auto, writes `resolvConf: {instead}` into {path}"
            )
        }
        (_, Some(file)) => format!("set `resolvConf: {instead}` in {file}, {restart}"),
        (_, None) => format!("set `resolvConf: {instead}` in kubelet's configuration, {restart}"),
    }
}

/// Returns why pods cannot use a file, or not all of its nameservers, and a suitable one.
fn wrong(
    seen: &Seen,
    kubelet: &Kubelet,
    reads: Option<&str>,
    chosen: &ResolvConf,
) -> Option<(String, String)> {
    let reads = reads.unwrap_or(ours::RESOLV_CONF);
    if matches!(reads, ours::FOR_KUBELET | "") {
        return None;
    }
    let upstreams = seen.upstreams.as_deref();
    let text = match reads {
        ours::RESOLV_CONF => seen.resolv_conf.text.as_deref(),
        UPSTREAMS => upstreams,
        _ => kubelet.text.as_deref(),
    };
    let missing = text.is_none() && reads != ours::RESOLV_CONF && reads != STUB;
    let lost = unreachable(text);
    if !missing && reads != STUB && lost.is_empty() {
        return None;
    }
    let gone = missing && reads == UPSTREAMS;
    let instead = if gone && usable(seen.resolv_conf.text.as_deref()) {
        ours::RESOLV_CONF
    } else if seen.owner == Owner::Resolved && usable(upstreams) {
        UPSTREAMS
    } else if !reachable(chosen).nameservers.is_empty() {
        ours::FOR_KUBELET
    } else if usable(upstreams) {
        UPSTREAMS
    } else {
        SUITABLE_FILE
    };
    let because = match lost.join(", ") {
        _ if gone => "which does not exist because systemd-resolved does not run".to_owned(),
        _ if missing => "which does not exist".to_owned(),
        lost if lost.is_empty() => {
            "which points to systemd-resolved's stub, which pods cannot reach".to_owned()
        }
        lost => {
            format!(
                "which contains {lost}: pods cannot reach loopback and link-local IPv6 addresses of the guest"
            )
        }
    };
    Some((because, instead.to_owned()))
}

#[cfg(test)]
mod tests;
