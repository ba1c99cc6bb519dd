//! cloud-init's seed disks.

use std::fmt;

use serde_json::json;

/// Data source of cloud-init for which the seed is made. KubeVirt supports both: `cloudInitNoCloud`
/// and `cloudInitConfigDrive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A filesystem labelled `cidata`.
    NoCloud,
    /// A filesystem labelled `config-2`, laid out as OpenStack does.
    ConfigDrive,
}

/// Filesystem of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A FAT filesystem: fast to create.
    Vfat,
    /// ISO 9660, as KubeVirt creates it.
    Iso,
}

/// User-data: text, or gzip of it. Snapshots are compared with its debug output, as text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct UserData(Vec<u8>);

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

/// A seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    pub(super) source: Source,
    pub(super) format: Format,
    pub(super) meta_data: String,
    pub(super) user_data: UserData,
    pub(super) network: Option<String>,
}

impl Seed {
    /// A NoCloud seed with this instance id, which is also the host name, and empty user-data.
    pub fn no_cloud(instance: &str) -> Self {
        Self {
            source: Source::NoCloud,
            format: Format::Vfat,
            meta_data: json!({"instance-id": instance, "local-hostname": instance}).to_string(),
            user_data: UserData(b"#cloud-config\n{}\n".to_vec()),
            network: None,
        }
    }
    /// As [`Seed::no_cloud`], as a ConfigDrive.
    pub fn config_drive(instance: &str) -> Self {
        Self {
            source: Source::ConfigDrive,
            meta_data: json!({"uuid": instance, "hostname": instance, "name": instance}).to_string(),
            ..Self::no_cloud(instance)
        }
    }
    /// Sets the user-data, first line included, also compressed; on a ConfigDrive this can also be
    /// an Ignition configuration.
    #[must_use]
    pub fn user_data(mut self, content: impl Into<Vec<u8>>) -> Self {
        self.user_data = UserData(content.into());
        self
    }
    /// Sets the meta-data: YAML for NoCloud, JSON for ConfigDrive.
    #[must_use]
    pub fn meta_data(mut self, text: impl Into<String>) -> Self {
        self.meta_data = text.into();
        self
    }
    /// Sets the network configuration: `network-config` for NoCloud, `network_data.json` for
    /// ConfigDrive.
    #[must_use]
    pub fn network(mut self, text: impl Into<String>) -> Self {
        self.network = Some(text.into());
        self
    }
    /// Uses ISO 9660 instead of FAT.
    #[must_use]
    pub fn iso(mut self) -> Self {
        self.format = Format::Iso;
        self
    }

    /// The label of its filesystem.
    pub(super) fn label(&self) -> &'static str {
        match self.source {
            Source::NoCloud => "cidata",
            Source::ConfigDrive => "config-2",
        }
    }

    /// Its files: path and content.
    pub(super) fn files(&self) -> Vec<(&'static str, &[u8])> {
        let [meta, user, network] = match self.source {
            Source::NoCloud => ["meta-data", "user-data", "network-config"],
            Source::ConfigDrive => [
                "openstack/latest/meta_data.json",
                "openstack/latest/user_data",
                "openstack/latest/network_data.json",
            ],
        };
        let mut files = vec![
            (meta, self.meta_data.as_bytes()),
            (user, self.user_data.0.as_slice()),
        ];
        files.extend(self.network.as_deref().map(|text| (network, text.as_bytes())));
        files
    }
}
