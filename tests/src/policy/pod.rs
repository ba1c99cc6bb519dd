//! Pods, as far as policies select them.

use std::net::IpAddr;

use super::{document::Protocol, selector::Labels};

/// The label that Kubernetes gives each namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// A namespace of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNamespace {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
}

impl PodNamespace {
    /// A namespace with these labels, and the label that Kubernetes gives each.
    pub fn new(name: &str, labels: &[(&str, &str)]) -> Self {
        let named = [(NAMESPACE_LABEL, name)];
        Self {
            name: name.to_owned(),
            labels: labels_of(labels.iter().chain(&named)),
        }
    }
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: PodNamespace,
    /// Its labels.
    pub labels: Labels,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its container ports that have names.
    pub ports: Vec<ContainerPort>,
}

/// A container port with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPort {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

impl Pod {
    /// A pod without named ports.
    pub fn new(namespace: &PodNamespace, labels: &[(&str, &str)], address: IpAddr) -> Self {
        Self {
            namespace: namespace.clone(),
            labels: labels_of(labels),
            addresses: vec![address],
            ports: Vec::new(),
        }
    }

    /// The number of the container port with this name and protocol.
    pub fn port(&self, name: &str, protocol: Protocol) -> Option<u16> {
        let mut ports = self.ports.iter();
        let port = ports.find(|port| port.name == name && port.protocol == protocol)?;
        Some(port.number)
    }
}

fn labels_of<'a>(labels: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Labels {
    let labels = labels.into_iter();
    labels
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}
