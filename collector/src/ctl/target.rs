//! What a verb asks for: a path, a query, and the view that shows the answer.

use virtfleet_collector_core::view::{List, VmView};
use virtfleet_wire::ids::{InvalidId, Namespace, VmName};

use super::{
    cli::{Labels, Policy, Show, Verb, VmFilters},
    client::{Answer, Client},
    fail::Fail,
    view::{self, Look},
};

/// One question to the API.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) view: fn(&Answer, &Look) -> Result<String, Fail>,
    /// It is a list: `partial` and the inventory's findings are worth a line after it.
    pub(super) list: bool,
}

impl Target {
    /// What `verb` asks for. A VM named without its namespace is looked up first.
    pub(super) fn of(verb: &Verb, client: &Client) -> Result<Self, Fail> {
        Ok(match verb {
            Verb::Vms { filters, .. } => Self::list("/api/v1/vms", vm_query(filters), view::vms),
            Verb::Vm { name, .. } => Self {
                path: vm_path(name, client)?,
                query: Vec::new(),
                view: view::vm,
                list: false,
            },
            Verb::Hosts {
                zone, region, ready, ..
            } => {
                let query = query(&[("zone", zone), ("region", region), ("ready", ready)]);
                Self::list("/api/v1/hosts", query, view::hosts)
            }
            Verb::Clusters { .. } => Self::list("/api/v1/clusters", Vec::new(), view::clusters),
            Verb::Findings {
                severity,
                scope,
                namespace,
                cluster,
                ..
            } => {
                let query = query(&[
                    ("severity", severity),
                    ("scope", scope),
                    ("namespace", namespace),
                    ("cluster", cluster),
                ]);
                Self::list("/api/v1/findings", query, view::findings)
            }
            Verb::Labels(verb) => Self::labels(verb),
        })
    }

    fn labels(verb: &Labels) -> Self {
        match verb {
            Labels::Diff {
                cluster,
                namespace,
                label,
                all,
                ..
            } => {
                let mut query = query(&[("cluster", cluster), ("namespace", namespace), ("key", label)]);
                if !all {
                    let differs = ["set", "remove", "restore", "report"];
                    query.extend(differs.map(|action| ("action", action.to_owned())));
                }
                Self::list("/api/v1/labels", query, view::labels)
            }
            Labels::Why { node, label, .. } => {
                let (cluster, node) = match node.split_once('/') {
                    Some((cluster, node)) => (Some(cluster), node),
                    None => (None, node.as_str()),
                };
                let mut query = vec![("node", node.to_owned()), ("key", label.clone())];
                query.extend(cluster.map(|cluster| ("cluster", cluster.to_owned())));
                Self {
                    list: false,
                    ..Self::list("/api/v1/labels", query, view::label)
                }
            }
            Labels::Policy(_) => Self::list("/api/v1/labels/inputs", Vec::new(), view::label_changes),
        }
    }

    fn list(
        path: &str,
        query: Vec<(&'static str, String)>,
        view: fn(&Answer, &Look) -> Result<String, Fail>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            query,
            view,
            list: true,
        }
    }
}

/// How `verb` is to be shown.
pub(super) fn show(verb: &Verb) -> &Show {
    match verb {
        Verb::Vms { show, .. }
        | Verb::Vm { show, .. }
        | Verb::Hosts { show, .. }
        | Verb::Clusters { show }
        | Verb::Findings { show, .. }
        | Verb::Labels(
            Labels::Diff { show, .. } | Labels::Why { show, .. } | Labels::Policy(Policy::Test { show, .. }),
        ) => show,
    }
}

fn query(filters: &[(&'static str, &Vec<String>)]) -> Vec<(&'static str, String)> {
    filters
        .iter()
        .flat_map(|(name, values)| values.iter().map(|value| (*name, value.clone())))
        .collect()
}

fn vm_query(filters: &VmFilters) -> Vec<(&'static str, String)> {
    let mut asked = query(&[
        ("namespace", &filters.namespace),
        ("cluster", &filters.cluster),
        ("node", &filters.node),
        ("zone", &filters.zone),
        ("region", &filters.region),
        ("state", &filters.state),
        ("agent", &filters.agent),
    ]);
    asked.extend(filters.q.clone().map(|text| ("q", text)));
    asked
}

/// The path of the VM that `text` names.
fn vm_path(text: &str, client: &Client) -> Result<String, Fail> {
    let usage = |error: InvalidId| Fail::Usage(error.to_string());
    if let Some((namespace, name)) = text.split_once('/') {
        let namespace: Namespace = namespace.parse().map_err(usage)?;
        let name: VmName = name.parse().map_err(usage)?;
        return Ok(format!("/api/v1/vms/{namespace}/{name}"));
    }
    let name: VmName = text.parse().map_err(usage)?;
    let query = [("q", name.to_string())];
    let list: List<VmView> = client
        .get("/api/v1/vms", &query, std::time::Duration::ZERO)?
        .read()?;
    let named = |vm: &&VmView| vm.name == name;
    let full = |vm: &VmView| format!("{}/{}", vm.namespace, vm.name);
    let found: Vec<String> = list.items.iter().filter(named).map(full).collect();
    match found.as_slice() {
        [only] => Ok(format!("/api/v1/vms/{only}")),
        [] => {
            let near: Vec<_> = list.items.iter().take(5).map(full).collect();
            let mut message = if near.is_empty() {
                format!("there is no VM {name}: virtfleetctl vms lists them all")
            } else {
                format!("there is no VM {name}: did you mean {}", near.join(", "))
            };
            if list.partial {
                message.push_str(". The inventory is incomplete, so it may exist all the same");
            }
            Err(Fail::NotFound(message))
        }
        several => Err(Fail::Ambiguous(format!(
            "several VMs are named {name}; say which:\n  {}",
            several.join("\n  ")
        ))),
    }
}
