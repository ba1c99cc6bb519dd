//! Files of the agent: their paths, and the marker by which the agent recognises them.

use super::seen::{File, Kubelet, Seen};

/// Start of the first line of every file of the agent.
pub const MARK: &str = "# Written by virtfleet-agent";
/// Prefix of a line that keeps the platform's configuration where no other file has it.
pub const PLATFORM: &str = "# Platform:";
/// systemd-resolved's drop-in. Like all files of the agent, its name sorts after those of others,
/// so that its resets are effective: a DHCP client's hook writes
/// `/run/systemd/resolved.conf.d/isc-dhcp-v4-eth0.conf`.
pub const RESOLVED: &str = "/etc/systemd/resolved.conf.d/zz-virtfleet.conf";
/// Directory of drop-ins for networkd's links: `<profile>.network.d/zz-virtfleet.conf`, wherever
/// the `.network` file itself is (netplan's are in `/run`).
pub const NETWORKD: &str = "/etc/systemd/network";
/// Name of the drop-ins below [`NETWORKD`].
pub const DROP_IN: &str = "zz-virtfleet.conf";
/// NetworkManager's drop-in.
pub const NETWORK_MANAGER: &str = "/etc/NetworkManager/conf.d/zz-virtfleet.conf";
/// Its content if systemd-resolved is used: NetworkManager must not pass nameservers to it.
pub const NETWORK_MANAGER_DNS_OFF: &str = "[main]\ndns=none\nsystemd-resolved=false\n";
/// Prevents dhclient from writing `/etc/resolv.conf`.
pub const DHCLIENT: &str = "/etc/dhcp/dhclient-enter-hooks.d/virtfleet";
/// File with the real nameservers for kubelet's `resolvConf`, if `/etc/resolv.conf` is a plain
/// file. It is persistent: kubelet starts no pod without it, also if the first run of a boot may
/// not write.
pub const FOR_KUBELET: &str = "/var/lib/virtfleet/resolv.conf";
/// File that programs read.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Paths of the agent's files except networkd's drop-ins ([`networkd_drop_in`]). The host stores
/// the files that exist there in `Seen::files`.
pub const PATHS: [&str; 4] = [RESOLVED, NETWORK_MANAGER, DHCLIENT, FOR_KUBELET];

/// Path of the drop-in for a link's `.network` file in `/etc`, `/run` or `/usr/lib`; `None` for
/// another path.
pub fn networkd_drop_in(profile: &str) -> Option<String> {
    let name = profile.rsplit('/').next()?;
    let clean = |c: char| c.is_ascii_alphanumeric() || "-_.@:+".contains(c);
    (name.ends_with(".network") && name.chars().all(clean)).then(|| format!("{NETWORKD}/{name}.d/{DROP_IN}"))
}

/// Name of the agent's drop-in of kubelet's configuration. An admin's drop-in that sorts after it
/// overrides it on purpose.
pub const KUBELET_DROP_IN: &str = "90-virtfleet.conf";

/// Folder in Kubernetes' documentation. The agent inspects it even if kubelet is not known to read
/// it, to remove its own drop-in.
pub const KUBELET_FOLDER: &str = "/etc/kubernetes/kubelet.conf.d";

/// Path of the agent's drop-in of kubelet's configuration; `None` if kubelet reads no drop-ins.
pub fn kubelet_drop_in(kubelet: &Kubelet) -> Option<String> {
    let folder = kubelet.config_dir.as_deref()?.trim_end_matches('/');
    Some(format!("{folder}/{KUBELET_DROP_IN}")).filter(|path| path.starts_with('/'))
}

/// Whether a path is that of the agent's drop-in of kubelet's configuration.
pub fn is_kubelet_drop_in(path: &str) -> bool {
    path.rsplit('/').next() == Some(KUBELET_DROP_IN)
}

/// Whether the agent wrote a text.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

/// Whether the agent replaced `/etc/resolv.conf` with its own file.
pub fn taken_over(file: &File) -> bool {
    file.link.is_none() && file.text.as_deref().is_some_and(is_ours)
}

/// Paths of all files of the agent except the file for kubelet, which stays in every mode.
pub fn paths(seen: &Seen) -> Vec<String> {
    let mut all: Vec<String> = files(seen).map(|one| one.0.to_owned()).collect();
    all.retain(|path| path != FOR_KUBELET);
    all.extend(taken_over(&seen.resolv_conf).then(|| RESOLV_CONF.to_owned()));
    all
}

/// Files of the agent by path.
pub fn files(seen: &Seen) -> impl Iterator<Item = (&str, &str)> {
    seen.files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .filter(|(_, text)| is_ours(text))
}
