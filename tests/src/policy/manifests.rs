//! Shipped manifests, as a user applies them.

use std::{fs, net::IpAddr, path::Path};

use anyhow::{Context as _, Result};
use serde_json::Value;
use virtfleet_wire::layered::{Node, parse_yaml};

use super::{
    document::{NetworkPolicy, Protocol, read_policies},
    pod::{ContainerPort, Pod, PodNamespace},
};

/// A manifest, and what is changed in it before it is applied.
#[derive(Debug, Clone)]
pub struct Manifest {
    path: String,
    text: String,
}

impl Manifest {
    /// A file of `packaging/collector/kubernetes`.
    pub fn shipped(name: &str) -> Result<Self> {
        Self::read(&format!("packaging/collector/kubernetes/{name}"))
    }

    /// A file of `tests/fixtures/policies`: policies that others have applied.
    pub fn of_others(name: &str) -> Result<Self> {
        Self::read(&format!("tests/fixtures/policies/{name}"))
    }

    fn read(path: &str) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        let path = path.to_owned();
        Ok(Self { path, text })
    }

    /// Replaces a text, which must be there.
    pub fn replace(mut self, old: &str, new: &str) -> Result<Self> {
        anyhow::ensure!(self.text.contains(old), "{} does not contain {old:?}", self.path);
        self.text = self.text.replace(old, new);
        Ok(self)
    }

    /// Its policies, of which there is at least one.
    pub fn policies(&self) -> Result<Vec<NetworkPolicy>> {
        let policies = read_policies(&self.text).with_context(|| self.path.clone())?;
        anyhow::ensure!(!policies.is_empty(), "{} contains no NetworkPolicy", self.path);
        Ok(policies)
    }

    /// A pod of its Deployment.
    pub fn pod(&self, namespace: &PodNamespace, address: IpAddr) -> Result<Pod> {
        let deployment = self.deployment()?;
        let template = &deployment["spec"]["template"];
        anyhow::ensure!(
            deployment["metadata"]["namespace"] == namespace.name,
            "the Deployment of {} is not in {}",
            self.path,
            namespace.name
        );
        let labels = template["metadata"]["labels"].as_object();
        let labels = labels.context("a pod template without labels")?;
        let labels = labels.iter().map(|(key, value)| {
            let value = value.as_str().context("a label that is no text")?;
            Ok((key.clone(), value.to_owned()))
        });
        let ports = template["spec"]["containers"][0]["ports"].as_array();
        let ports = ports.context("a container without ports")?.iter().map(port);
        Ok(Pod {
            namespace: namespace.clone(),
            labels: labels.collect::<Result<_>>()?,
            addresses: vec![address],
            ports: ports.collect::<Result<_>>()?,
        })
    }

    /// Arguments of its Deployment's container.
    pub fn arguments(&self) -> Result<Vec<String>> {
        let deployment = self.deployment()?;
        let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        serde_json::from_value(arguments.clone()).with_context(|| format!("args of {}", self.path))
    }

    fn deployment(&self) -> Result<Value> {
        let documents = parse_yaml(&self.text).with_context(|| self.path.clone())?;
        let mut documents = documents.iter().map(Node::to_json);
        let deployment = documents.find(|document| document["kind"] == "Deployment");
        deployment.with_context(|| format!("{} contains no Deployment", self.path))
    }
}

fn port(written: &Value) -> Result<ContainerPort> {
    let number = written["containerPort"]
        .as_u64()
        .context("a port without a number")?;
    Ok(ContainerPort {
        name: written["name"]
            .as_str()
            .context("a port without a name")?
            .to_owned(),
        protocol: Protocol::Tcp,
        number: u16::try_from(number).context("port")?,
    })
}
