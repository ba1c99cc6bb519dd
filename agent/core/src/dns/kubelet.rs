//! Kubelet: which file it gives pods, whether that is of use to them, and how it is told of another one.

use std::net::IpAddr;

use super::{
    advice::{Advice, UPSTREAMS},
    answers::Judged,
    choice::Choice,
    collision::Collision,
    effective::{effective, stub_only},
    ours,
    render::{OurFile, header},
    resolv::{self, ResolvConf},
    seen::{Kubelet, Owner, Seen},
};

/// systemd-resolved's stub.
const STUB: &str = "/run/systemd/resolve/stub-resolv.conf";
/// What is advised where no file is of use.
const NOBODY: &str = "a file with nameservers that pods reach";

/// Whether kubelet gives pods our file, or may, since it runs and was told so when it started. Then it stays whoever owns `/etc/resolv.conf`: no pod starts without it.
pub fn kubelet_reads(seen: &Seen) -> bool {
    let there = seen.files.contains_key(ours::FOR_KUBELET);
    let kubelet = seen.kubelet.as_ref();
    kubelet.is_some_and(|kubelet| {
        kubelet.resolv_conf.as_deref() == Some(ours::FOR_KUBELET)
            || (there && (kubelet.started_ns.is_some() || folder_unknown(kubelet)))
    })
}

/// Whether its flags may yet say that it reads a folder of drop-ins: it does not run, as at boot, and where its unit has them from is not always known.
fn folder_unknown(kubelet: &Kubelet) -> bool {
    kubelet.config_dir.is_none() && kubelet.started_ns.is_none()
}

/// The file that kubelet reads, where it is not there or not as it is to be: kept in every mode, since no pod starts without it and each gets what it says. From the
/// choice, else from what was verified last, else from what is in use; one that answers before one that does not; without what pods cannot reach, and without what
/// collides unless there is nothing else. None when it is as it is to be, is not read, or nobody is known.
pub fn for_kubelet(
    seen: &Seen,
    choice: Option<&Choice>,
    collisions: &[Collision],
    judged: &[Judged],
) -> Option<OurFile> {
    let there = seen.files.get(ours::FOR_KUBELET);
    if !kubelet_reads(seen) || there.is_some_and(|text| !ours::is_ours(text)) {
        return None;
    }
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
    let conf = best.iter().find(answers).or(best.first()).or_else(alone)?;
    let text = conf.text(&header());
    (there != Some(&text)).then(|| OurFile {
        path: ours::FOR_KUBELET.to_owned(),
        text,
        mode: 0o644,
    })
}

/// The same without what pods cannot reach: loopback is their own, and so are their interfaces.
pub(super) fn reachable(conf: &ResolvConf) -> ResolvConf {
    let mut conf = conf.clone();
    let link_local = |one: &IpAddr| matches!(one, IpAddr::V6(one) if one.is_unicast_link_local());
    conf.nameservers
        .retain(|one| !one.is_loopback() && !link_local(one));
    conf.zones.clear();
    conf
}

/// Our drop-in of kubelet's configuration, where kubelet reads such, and is told by others to give pods what is of no use to them. A flag counts more than any
/// drop-in, so there is none where a flag says so.
pub(super) fn drop_in(seen: &Seen, conf: &ResolvConf) -> Option<OurFile> {
    let kubelet = seen.kubelet.as_ref().filter(|kubelet| !kubelet.by_flag)?;
    let Some(path) = ours::kubelet_drop_in(kubelet) else {
        // As it is, until it is known whether kubelet reads it.
        let mut files = ours::files(seen).filter(|_| folder_unknown(kubelet));
        let (path, text) = files.find(|(path, _)| ours::is_kubelet_drop_in(path))?;
        return Some(OurFile {
            path: path.to_owned(),
            text: text.to_owned(),
            mode: 0o644,
        });
    };
    let (_, instead) = wrong(seen, kubelet, kubelet.others.as_deref(), conf)?;
    (instead != NOBODY).then(|| OurFile {
        path,
        text: format!(
            "{}apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nresolvConf: {instead}\n",
            header()
        ),
        mode: 0o644,
    })
}

/// What kubelet should be told.
pub(super) fn advice(seen: &Seen, merged: &ResolvConf) -> Option<Advice> {
    let kubelet = seen.kubelet.as_ref()?;
    if kubelet.resolv_conf.as_deref() == Some(ours::FOR_KUBELET)
        && !seen.files.contains_key(ours::FOR_KUBELET)
    {
        let config = kubelet.path.clone();
        return Some(Advice::KubeletFileMissing { config });
    }
    let (because, instead) = wrong(seen, kubelet, kubelet.resolv_conf.as_deref(), merged)?;
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

/// What a person does about it: the very file or flag, and the line.
fn how(seen: &Seen, kubelet: &Kubelet, instead: &str) -> String {
    let restart = "and restart kubelet: sudo systemctl restart kubelet";
    if kubelet.by_flag {
        let place = kubelet.flag_in.as_deref().unwrap_or("kubelet's command line");
        return format!(
            "set --resolv-conf={instead} in {place}, since a flag counts more than any file, {restart}"
        );
    }
    match (ours::kubelet_drop_in(kubelet), &kubelet.config) {
        (Some(path), _) if seen.files.contains_key(&path) => {
            format!("{path} does not count: take resolvConf out of the files behind it, {restart}")
        }
        (Some(path), _) if instead != NOBODY => {
            format!(
                "sudo virtfleet-agent apply dns, or dns.manage: auto, writes `resolvConf: {instead}` into {path}"
            )
        }
        (_, Some(file)) => format!("set `resolvConf: {instead}` in {file}, {restart}"),
        (_, None) => format!("set `resolvConf: {instead}` in kubelet's configuration, {restart}"),
    }
}

/// Why a file is of no use to pods, and which one is.
fn wrong(
    seen: &Seen,
    kubelet: &Kubelet,
    reads: Option<&str>,
    merged: &ResolvConf,
) -> Option<(String, String)> {
    let reads = reads.unwrap_or(ours::RESOLV_CONF);
    if reads == UPSTREAMS && seen.upstreams.is_none() {
        let because = "which is not there because systemd-resolved does not run".to_owned();
        return Some((because, ours::RESOLV_CONF.to_owned()));
    }
    if matches!(reads, UPSTREAMS | ours::FOR_KUBELET | "") {
        return None;
    }
    let text = match reads {
        ours::RESOLV_CONF => seen.resolv_conf.text.as_deref(),
        _ => kubelet.text.as_deref(),
    };
    let missing = text.is_none() && reads != ours::RESOLV_CONF && reads != STUB;
    let conf = text.map(resolv::parse).unwrap_or_default();
    if !(missing || reads == STUB || stub_only(&conf)) {
        return None;
    }
    let instead = if seen.owner == Owner::Resolved || seen.upstreams.is_some() {
        UPSTREAMS
    } else if !reachable(merged).nameservers.is_empty() {
        ours::FOR_KUBELET
    } else {
        NOBODY
    };
    let shown = conf.shown_nameservers().join(", ");
    let because = match shown.as_str() {
        _ if missing => "which is not there".to_owned(),
        "" => "which is systemd-resolved's stub, and a pod has none".to_owned(),
        shown => format!("which names {shown}, the guest's own loopback, and a pod has its own"),
    };
    Some((because, instead.to_owned()))
}

#[cfg(test)]
mod tests;
