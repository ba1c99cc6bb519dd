//! Which files are ours: their paths, and the mark by which they are known again.

use super::seen::{File, Kubelet, Seen};

/// The first line of every file that we write begins so.
pub const MARK: &str = "# Written by virtfleet-agent";
/// Begins a line in which the platform's own configuration is kept, where nothing else keeps it.
pub const PLATFORM: &str = "# Platform:";
/// systemd-resolved's drop-in. As every file of ours among those of others it sorts behind them, so that what it resets stays reset: a DHCP client's hook writes
/// `/run/systemd/resolved.conf.d/isc-dhcp-v4-eth0.conf`.
pub const RESOLVED: &str = "/etc/systemd/resolved.conf.d/zz-virtfleet.conf";
/// Where the configuration of networkd's links is added to: `<profile>.network.d/zz-virtfleet.conf` below it, wherever the `.network` file itself lies (netplan's are in `/run`).
pub const NETWORKD: &str = "/etc/systemd/network";
/// The name of the drop-ins below [`NETWORKD`].
pub const DROP_IN: &str = "zz-virtfleet.conf";
/// NetworkManager's file.
pub const NETWORK_MANAGER: &str = "/etc/NetworkManager/conf.d/zz-virtfleet.conf";
/// What it has in front of systemd-resolved: NetworkManager tells that nothing.
pub const SILENT: &str = "[main]\ndns=none\nsystemd-resolved=false\n";
/// Keeps dhclient from writing `/etc/resolv.conf`.
pub const DHCLIENT: &str = "/etc/dhcp/dhclient-enter-hooks.d/virtfleet";
/// The real nameservers, for kubelet's `resolvConf` where `/etc/resolv.conf` is a plain file. On a disk: kubelet starts no pod without it, also when the first pass
/// of a boot may write nothing.
pub const FOR_KUBELET: &str = "/var/lib/virtfleet/resolv.conf";
/// The file that programs read.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The paths at which we write, but for networkd's drop-ins ([`networkd_drop_in`]): the host puts what it finds there into `Seen::files`.
pub const PATHS: [&str; 4] = [RESOLVED, NETWORK_MANAGER, DHCLIENT, FOR_KUBELET];

/// The path of the drop-in for a link's `.network` file, which lies in `/etc`, `/run` or `/usr/lib`; none when that is no such file.
pub fn networkd_drop_in(profile: &str) -> Option<String> {
    let name = profile.rsplit('/').next()?;
    let clean = |c: char| c.is_ascii_alphanumeric() || "-_.@:+".contains(c);
    (name.ends_with(".network") && name.chars().all(clean)).then(|| format!("{NETWORKD}/{name}.d/{DROP_IN}"))
}

/// The name of our drop-in of kubelet's configuration, in its folder. An operator's that sorts behind it counts more, and is meant so.
pub const KUBELET_DROP_IN: &str = "90-virtfleet.conf";

/// The folder of Kubernetes' documentation. Looked at also when nobody says that kubelet reads it: what we wrote there is ours to take away.
pub const KUBELET_FOLDER: &str = "/etc/kubernetes/kubelet.conf.d";

/// The path of our drop-in of kubelet's configuration; none when kubelet reads no folder of them.
pub fn kubelet_drop_in(kubelet: &Kubelet) -> Option<String> {
    let folder = kubelet.config_dir.as_deref()?.trim_end_matches('/');
    Some(format!("{folder}/{KUBELET_DROP_IN}")).filter(|path| path.starts_with('/'))
}

/// Whether a path is that of our drop-in of kubelet's configuration.
pub fn is_kubelet_drop_in(path: &str) -> bool {
    path.rsplit('/').next() == Some(KUBELET_DROP_IN)
}

/// Whether a text is one that we have written.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

/// Whether `/etc/resolv.conf` is a file of ours in the place of what was there.
pub fn taken_over(file: &File) -> bool {
    file.link.is_none() && file.text.as_deref().is_some_and(is_ours)
}

/// The paths at which something of ours has a say: all but the file for kubelet, which is kept in every mode.
pub fn paths(seen: &Seen) -> Vec<String> {
    let mut all: Vec<String> = files(seen).map(|one| one.0.to_owned()).collect();
    all.retain(|path| path != FOR_KUBELET);
    all.extend(taken_over(&seen.resolv_conf).then(|| RESOLV_CONF.to_owned()));
    all
}

/// Files of ours, by path.
pub fn files(seen: &Seen) -> impl Iterator<Item = (&str, &str)> {
    seen.files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .filter(|(_, text)| is_ours(text))
}
