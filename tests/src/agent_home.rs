//! The real agent on this machine, with a guest's folders of its own.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::{
    bins,
    process::{Launch, Process},
    stage::STAGE_TIMEOUT,
};

/// A folder with the agent's settings (`agent.yaml`), its root filesystem (`root`) and sysfs
/// (`sys`).
#[derive(Debug)]
pub struct AgentHome {
    folder: PathBuf,
    /// Where the agent listens.
    pub address: SocketAddr,
}

impl AgentHome {
    /// Creates the folders below `folder`. SMBIOS, with this UUID, is all of sysfs.
    pub fn new(folder: impl Into<PathBuf>, address: SocketAddr, uuid: &str) -> Result<Self> {
        let home = Self {
            folder: folder.into(),
            address,
        };
        home.clear_root()?;
        home.set_uuid(uuid)?;
        Ok(home)
    }

    /// A path below the folder.
    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// Makes the root filesystem an empty one.
    pub fn clear_root(&self) -> Result<()> {
        let root = self.at("root");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        Ok(fs::create_dir_all(root.join("run/virtfleet/ask"))?)
    }

    /// Sets the UUID in SMBIOS.
    pub fn set_uuid(&self, uuid: &str) -> Result<()> {
        let folder = self.at("sys/class/dmi/id");
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join("product_uuid"), uuid)?)
    }

    /// Writes settings of an agent that collectors of `client_ca` enrol, with further settings in
    /// `server.tls` and further lines.
    pub fn configure(&self, client_ca: &Path, tls: &str, more: &str) -> Result<()> {
        let text = format!(
            "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\nserver:\n  listeners: [{{name: default, address: \
             \"{}\"}}]\n  tls: {{enrolment: true, clientCA: {}{tls}}}\n{more}",
            self.address,
            client_ca.display(),
        );
        Ok(fs::write(self.at("agent.yaml"), text)?)
    }

    /// A command of the agent with these verbs and options.
    pub fn command(&self, verb: &[&str]) -> Result<Launch> {
        Ok(self.with_paths(Launch::new(bins::agent()?).args(verb)))
    }

    /// Adds the options that name the folders.
    pub fn with_paths(&self, launch: Launch) -> Launch {
        launch
            .arg("--config")
            .arg(self.at("agent.yaml"))
            .arg("--path.rootfs")
            .arg(self.at("root"))
            .arg("--path.sysfs")
            .arg(self.at("sys"))
    }

    /// Starts `launch` as the agent, and waits until it listens.
    pub fn start(&self, launch: Launch) -> Result<Process> {
        let mut agent = launch.start(&self.folder)?;
        agent.wait_for_port(self.address, STAGE_TIMEOUT)?;
        Ok(agent)
    }
}
