//! The images with programs: which ones each has, and how it runs.

use anyhow::Result;
use serde_json::{Value, json};

use crate::manual::{self, ManualFile};

/// User and group of the program, as in the shipped manifests.
pub const USER: &str = "65532:65532";

/// An image of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// Collector and CLI.
    Collector,
    /// The agent. Gardener's node-agent extracts it from the image; nothing runs there.
    Agent,
}

impl ImageKind {
    /// The package whose dependencies are in the bill of materials.
    pub fn package(self) -> &'static str {
        match self {
            Self::Collector => "virtfleet-collector",
            Self::Agent => "virtfleet-agent",
        }
    }

    /// The programs of the image. The first runs without arguments of its own.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Collector => &["virtfleet-collector", "virtfleetctl"],
            Self::Agent => &["virtfleet-agent"],
        }
    }

    /// Man pages and completions of its programs, by path in the image.
    pub fn manual(self) -> Result<Vec<ManualFile>> {
        let mut files = Vec::new();
        for program in manual::commands() {
            if self.programs().contains(&program.get_name()) {
                files.extend(manual::installed(&program)?);
            }
        }
        Ok(files)
    }

    /// Path of the program that runs.
    pub fn entrypoint(self) -> String {
        format!("/usr/bin/{}", self.package())
    }

    /// A description for people.
    pub fn description(self) -> &'static str {
        match self {
            Self::Collector => "Collector and command line of virtfleet",
            Self::Agent => "Agent of virtfleet, to be extracted",
        }
    }

    /// The command that writes it.
    pub fn made_by(self) -> &'static str {
        match self {
            Self::Collector => "make image",
            Self::Agent => "make agent-image",
        }
    }

    /// How a container of it runs (`config.md` of the image specification).
    pub fn config(self) -> Value {
        let ports = self.ports().iter();
        let ports: Value = ports.map(|port| (format!("{port}/tcp"), json!({}))).collect();
        json!({
            "User": USER,
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": [self.entrypoint()],
            "Cmd": ["--help"],
            "WorkingDir": "/",
            "ExposedPorts": ports,
        })
    }

    /// Ports on which the program may listen.
    fn ports(self) -> &'static [u16] {
        match self {
            Self::Collector => &[10912, 10913, 10914, 10915, 10916],
            Self::Agent => &[],
        }
    }

    /// Maximum size of the image in bytes.
    pub fn max_bytes(self) -> u64 {
        match self {
            Self::Collector => 25 << 20,
            Self::Agent => 8 << 20,
        }
    }
}
