//! What cloud-init finds on its disk.

use serde_json::json;

/// Which of cloud-init's sources a seed is for. KubeVirt makes both: `cloudInitNoCloud` and `cloudInitConfigDrive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A filesystem labelled `cidata`.
    NoCloud,
    /// A filesystem labelled `config-2`, laid out as OpenStack does.
    ConfigDrive,
}

/// How a seed is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A FAT filesystem: made in no time.
    Vfat,
    /// ISO 9660, as KubeVirt makes it.
    Iso,
}

/// A seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    pub(super) source: Source,
    pub(super) format: Format,
    pub(super) meta_data: String,
    pub(super) user_data: String,
    pub(super) network: Option<String>,
}

impl Seed {
    /// A NoCloud seed with this instance id, which is its host name too, and a user-data that asks for nothing.
    pub fn no_cloud(instance: &str) -> Self {
        Self {
            source: Source::NoCloud,
            format: Format::Vfat,
            meta_data: json!({"instance-id": instance, "local-hostname": instance}).to_string(),
            user_data: "#cloud-config\n{}\n".to_owned(),
            network: None,
        }
    }
    /// The same as a ConfigDrive.
    pub fn config_drive(instance: &str) -> Self {
        Self {
            source: Source::ConfigDrive,
            meta_data: json!({"uuid": instance, "hostname": instance, "name": instance}).to_string(),
            ..Self::no_cloud(instance)
        }
    }
    /// The user-data, first line included. An Ignition configuration goes here too, on a ConfigDrive.
    #[must_use]
    pub fn user_data(mut self, text: impl Into<String>) -> Self {
        self.user_data = text.into();
        self
    }
    /// The meta-data: YAML for NoCloud, JSON for ConfigDrive.
    #[must_use]
    pub fn meta_data(mut self, text: impl Into<String>) -> Self {
        self.meta_data = text.into();
        self
    }
    /// The network configuration: `network-config` for NoCloud, `network_data.json` for ConfigDrive.
    #[must_use]
    pub fn network(mut self, text: impl Into<String>) -> Self {
        self.network = Some(text.into());
        self
    }
    /// As ISO 9660 instead of FAT.
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

    /// Its files: path and text.
    pub(super) fn files(&self) -> Vec<(&'static str, &str)> {
        let [meta, user, network] = match self.source {
            Source::NoCloud => ["meta-data", "user-data", "network-config"],
            Source::ConfigDrive => [
                "openstack/latest/meta_data.json",
                "openstack/latest/user_data",
                "openstack/latest/network_data.json",
            ],
        };
        let mut files = vec![(meta, self.meta_data.as_str()), (user, self.user_data.as_str())];
        files.extend(self.network.as_deref().map(|text| (network, text)));
        files
    }
}
