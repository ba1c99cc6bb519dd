//! Kubelet's resolver configuration: the file that it gives to pods, whether pods can use it, and
//! how to configure another one.

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

/// Removes nameservers that pods cannot reach: loopback addresses and interface scopes are
/// different in a pod.
pub(super) fn reachable(conf: &ResolvConf) -> ResolvConf {
    let mut conf = conf.clone();
    let link_local = |one: &IpAddr| matches!(one, IpAddr::V6(one) if one.is_unicast_link_local());
    conf.nameservers
        .retain(|one| !one.is_loopback() && !link_local(one));
    conf.zones.clear();
    conf
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
    (instead != SUITABLE_FILE).then(|| OurFile {
        path,
        text: format!(
            "{}apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nresolvConf: {instead}\n",
            header()
        ),
        mode: 0o644,
    })
}

/// Returns the advice about kubelet's configuration.
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
        (Some(path), _) if seen.files.contains_key(&path) => {
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

/// Returns why pods cannot use a file, and a suitable one.
fn wrong(
    seen: &Seen,
    kubelet: &Kubelet,
    reads: Option<&str>,
    merged: &ResolvConf,
) -> Option<(String, String)> {
    let reads = reads.unwrap_or(ours::RESOLV_CONF);
    if reads == UPSTREAMS && seen.upstreams.is_none() {
        let because = "which does not exist because systemd-resolved does not run".to_owned();
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
        SUITABLE_FILE
    };
    let shown = conf.shown_nameservers().join(", ");
    let because = match shown.as_str() {
        _ if missing => "which does not exist".to_owned(),
        "" => "which points to systemd-resolved's stub, which pods cannot reach".to_owned(),
        shown => format!("which contains {shown}, a loopback address of the guest that pods cannot reach"),
    };
    Some((because, instead.to_owned()))
}

#[cfg(test)]
mod tests;
