//! Additions to a machine's root.

use std::path::PathBuf;

/// Units that no scenario needs, or that cannot run in a container.
const MASKED: &str = "apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer xfs_scrub_all.timer \
     dpkg-db-backup.timer systemd-pstore.service console-getty.service getty@tty1.service ldconfig.service systemd-hwdb-update.service \
     systemd-journal-catalog-update.service systemd-update-done.service";

/// Additions to a machine's root, present from its first boot on.
#[derive(Debug, Clone)]
pub struct Options {
    pub(super) files: Vec<(String, String)>,
    pub(super) programs: Vec<(String, PathBuf)>,
    pub(super) enabled: Vec<String>,
    pub(super) masked: Vec<String>,
    pub(super) agent: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            programs: Vec::new(),
            enabled: Vec::new(),
            masked: MASKED.split_ascii_whitespace().map(str::to_owned).collect(),
            agent: false,
        }
    }
}

impl Options {
    /// Adds a file with this text; replaces the root's file. Mode 0644, owned by root.
    #[must_use]
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }

    /// Adds a program of this machine as `/usr/bin/<name>`.
    #[must_use]
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.push((name.to_owned(), path.into()));
        self
    }

    /// Enables a unit, as `systemctl enable` does.
    #[must_use]
    pub fn enable(mut self, unit: &str) -> Self {
        self.enabled.push(unit.to_owned());
        self
    }

    /// Masks a unit: it cannot be started.
    #[must_use]
    pub fn mask(mut self, unit: &str) -> Self {
        self.masked.push(unit.to_owned());
        self
    }

    /// Installs and enables the agent as its package does, with these settings in
    /// `/etc/virtfleet/agent.d/50-test.yaml` (everything below `kind`; no file if empty). It serves
    /// on loopback, port 10911, without certificates.
    #[must_use]
    pub fn agent(mut self, settings: &str) -> Self {
        self.agent = true;
        // Without certificates the agent may only serve on loopback.
        let server = "server: {listeners: [{name: default, address: \"127.0.0.1:10911\", plain: true}]}";
        let own = self.file(
            "/etc/virtfleet/agent.d/40-server.yaml",
            &super::settings::settings(server),
        );
        if settings.is_empty() {
            return own;
        }
        own.file(
            "/etc/virtfleet/agent.d/50-test.yaml",
            &super::settings::settings(settings),
        )
    }

    /// Enables systemd-networkd and systemd-resolved, with nameservers and search domains by DHCP
    /// on `eth0` (IPv4 only, so that the boot does not wait for a router).
    #[must_use]
    pub fn networkd(self) -> Self {
        self.file(
            "/etc/systemd/network/10-eth0.network",
            "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n[DHCP]\nUseDomains=yes\n",
        )
        .enable("systemd-networkd.service")
        .enable("systemd-resolved.service")
    }
}
