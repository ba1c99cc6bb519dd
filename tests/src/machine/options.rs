//! What a machine has beside its root.

use std::path::PathBuf;

/// Units that no scenario looks at, or that a container cannot have.
const MASKED: &str = "apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer xfs_scrub_all.timer \
     dpkg-db-backup.timer systemd-pstore.service console-getty.service getty@tty1.service ldconfig.service systemd-hwdb-update.service \
     systemd-journal-catalog-update.service systemd-update-done.service";

/// What a machine has beside its root, from before its first boot on.
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
    /// A file with this text, in the place of whatever the root has there. Mode 0644, root's.
    #[must_use]
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }

    /// A program of this machine as `/usr/bin/<name>`.
    #[must_use]
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.push((name.to_owned(), path.into()));
        self
    }

    /// A unit is enabled, as `systemctl enable` does it.
    #[must_use]
    pub fn enable(mut self, unit: &str) -> Self {
        self.enabled.push(unit.to_owned());
        self
    }

    /// A unit is masked: it does not start, whoever asks for it.
    #[must_use]
    pub fn mask(mut self, unit: &str) -> Self {
        self.masked.push(unit.to_owned());
        self
    }

    /// The agent, installed and enabled as its package does it, with these settings in `/etc/virtfleet/agent.d/50-test.yaml` (everything below
    /// `kind`; nothing for none). It serves on loopback, port 10911, without certificates.
    #[must_use]
    pub fn agent(mut self, settings: &str) -> Self {
        self.agent = true;
        // Without certificates it serves on loopback alone.
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

    /// systemd-networkd and systemd-resolved, with `eth0` by DHCP: nameservers and search domains (IPv4 only, so that nobody waits for a router).
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
