//! Steps of a DNS plan.

use super::super::{ours, seen::File};
use serde::{Deserialize, Serialize};

/// Step of a plan. Steps run in order. If one fails, or the nameservers do not answer afterwards,
/// the agent undoes all of them in reverse order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "step")]
pub enum DnsStep {
    WriteFile {
        path: String,
        text: String,
        /// Mode of the file, e.g. `0o644`.
        mode: u32,
    },
    RemoveFile {
        path: String,
    },
    /// Replace `/etc/resolv.conf` with a file of the agent, after saving the original.
    #[serde(rename = "takeOver")]
    ReplaceResolvConf {
        /// Content of the file.
        text: String,
    },
    /// Restore the original `/etc/resolv.conf`.
    #[serde(rename = "giveBack")]
    RestoreResolvConf {
        original: File,
    },
    /// Make a service reload its configuration.
    Reload {
        service: Service,
    },
    /// Run `resolvectl revert` for a link. It removes from systemd-resolved what NetworkManager set
    /// there and does not remove itself, or from networkd what was set at run time.
    Revert {
        link: String,
    },
    /// Stop networkd from passing this link's DNS servers to systemd-resolved, without
    /// reconfiguring the link (`resolvectl dns <link> ""`, which systemd-resolved forwards to
    /// networkd). It lasts until networkd restarts and reads the drop-in.
    #[serde(rename = "quiet")]
    SuppressLink {
        link: String,
    },
    /// Make networkd pass the link's DNS servers to systemd-resolved again (`resolvectl revert`).
    /// If networkd has read a drop-in of the agent and so does not know them, set them explicitly
    /// (`resolvectl dns`).
    #[serde(rename = "speak")]
    RestoreLink {
        link: String,
        nameservers: Vec<String>,
        /// Search domains assigned on the link.
        searches: Vec<String>,
    },
    /// Flush the resolver's cache.
    Flush,
}

impl DnsStep {
    /// Whether the step concerns kubelet's configuration drop-in. An obstacle to it must not block
    /// other steps.
    pub fn is_kubelets(&self) -> bool {
        matches!(self, Self::WriteFile { path, .. } | Self::RemoveFile { path } if ours::is_kubelet_drop_in(path))
    }
}

/// Service that reads a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// `systemctl try-reload-or-restart systemd-resolved` (reload from version 254 on). After the
    /// last file of the agent is removed, the agent resets its domains and reloads, or restarts the
    /// service.
    Resolved,
    /// `networkctl reload`, which reconfigures links whose files changed.
    Networkd,
    /// `nmcli general reload`.
    NetworkManager,
    /// `resolvconf -u`.
    Resolvconf,
}
