//! The request of a command: path, query, and the view for the response.

use virtfleet_collector_core::{
    join_token::JoinTokenId,
    view::{List, VmView},
};
use virtfleet_runtime::exit::Code;
use virtfleet_wire::ids::{InvalidId, Namespace, VmName};

use super::{
    cli::{
        CaCommand, EnrolmentCommand, LabelsCommand, OutputOptions, PolicyCommand, QueryCommand, TokenCommand,
        VmFilters,
    },
    client::{ApiResponse, Client},
    fail::Fail,
    view::{self, ViewOptions},
};

/// The summary of the fleet.
const STATUS_PATH: &str = "/api/v1/status";

/// One request to the API.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) view: fn(&ApiResponse, &ViewOptions) -> Result<String, Fail>,
    /// Whether it is a list, which may be partial and has a summary line.
    pub(super) list: bool,
}

impl Target {
    /// The exit code of a command that succeeded.
    pub(super) fn exit_code(&self, answer: &ApiResponse) -> Code {
        if self.path == STATUS_PATH {
            view::exit_code(answer)
        } else {
            Code::Ok
        }
    }

    /// The request of `command`. A VM without namespace is looked up first.
    pub(super) fn of(command: &QueryCommand, client: &Client) -> Result<Self, Fail> {
        Ok(match command {
            QueryCommand::Status { .. } => Self {
                path: STATUS_PATH.to_owned(),
                query: Vec::new(),
                view: view::status,
                list: false,
            },
            QueryCommand::Vms { filters, .. } => Self::list("/api/v1/vms", vm_query(filters), view::vms),
            QueryCommand::Vm {
                change: Some(change), ..
            }
            | QueryCommand::Enrolment(EnrolmentCommand::Change(change)) => Self {
                path: format!("{}/enrolment", vm_path(change.change().1, client)?),
                query: Vec::new(),
                view: view::enrolment,
                list: false,
            },
            QueryCommand::Vm { name, .. } => Self {
                path: vm_path(name.as_deref().unwrap_or_default(), client)?,
                query: Vec::new(),
                view: view::vm,
                list: false,
            },
            QueryCommand::Hosts {
                zone, region, ready, ..
            } => {
                let query = query(&[("zone", zone), ("region", region), ("ready", ready)]);
                Self::list("/api/v1/hosts", query, view::hosts)
            }
            QueryCommand::Clusters { .. } => Self::list("/api/v1/clusters", Vec::new(), view::clusters),
            QueryCommand::Findings {
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
            QueryCommand::Labels(command) => Self::labels(command),
            QueryCommand::Ca(_) => Self {
                path: "/api/v1/ca".to_owned(),
                query: Vec::new(),
                view: view::ca,
                list: false,
            },
            QueryCommand::Enrolment(EnrolmentCommand::List { namespace, state, .. }) => {
                let query = query(&[("namespace", namespace), ("state", state)]);
                Self::list("/api/v1/enrolments", query, view::enrolments)
            }
            QueryCommand::Token(command) => Self::token(command)?,
        })
    }

    fn token(command: &TokenCommand) -> Result<Self, Fail> {
        let tokens = "/api/v1/tokens";
        Ok(match command {
            TokenCommand::List { cluster, .. } => {
                Self::list(tokens, query(&[("cluster", cluster)]), view::tokens)
            }
            TokenCommand::Create { .. } => Self {
                list: false,
                ..Self::list(tokens, Vec::new(), view::created_token)
            },
            TokenCommand::Revoke { id, .. } => {
                let id: JoinTokenId = id
                    .parse()
                    .map_err(|error: InvalidId| Fail::Usage(error.to_string()))?;
                Self {
                    list: false,
                    ..Self::list(&format!("{tokens}/{id}/revoke"), Vec::new(), view::token)
                }
            }
        })
    }

    fn labels(command: &LabelsCommand) -> Self {
        match command {
            LabelsCommand::Diff {
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
            LabelsCommand::Why { node, label, .. } => {
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
            LabelsCommand::Policy(_) => Self::list("/api/v1/labels/inputs", Vec::new(), view::label_changes),
        }
    }

    fn list(
        path: &str,
        query: Vec<(&'static str, String)>,
        view: fn(&ApiResponse, &ViewOptions) -> Result<String, Fail>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            query,
            view,
            list: true,
        }
    }
}

/// Output options of `command`.
pub(super) fn show(command: &QueryCommand) -> &OutputOptions {
    match command {
        QueryCommand::Vm {
            change: Some(change), ..
        }
        | QueryCommand::Enrolment(EnrolmentCommand::Change(change)) => change.show(),
        QueryCommand::Status { show }
        | QueryCommand::Vms { show, .. }
        | QueryCommand::Vm { show, .. }
        | QueryCommand::Hosts { show, .. }
        | QueryCommand::Clusters { show }
        | QueryCommand::Findings { show, .. }
        | QueryCommand::Labels(
            LabelsCommand::Diff { show, .. }
            | LabelsCommand::Why { show, .. }
            | LabelsCommand::Policy(PolicyCommand::Test { show, .. }),
        )
        | QueryCommand::Ca(CaCommand::Status { show } | CaCommand::Rotate { show, .. })
        | QueryCommand::Enrolment(EnrolmentCommand::List { show, .. })
        | QueryCommand::Token(
            TokenCommand::Create { show, .. }
            | TokenCommand::List { show, .. }
            | TokenCommand::Revoke { show, .. },
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
    let mut requested = query(&[
        ("namespace", &filters.namespace),
        ("cluster", &filters.cluster),
        ("node", &filters.node),
        ("zone", &filters.zone),
        ("region", &filters.region),
        ("health", &filters.health),
        ("state", &filters.state),
        ("agent", &filters.agent),
    ]);
    requested.extend(filters.q.clone().map(|text| ("q", text)));
    requested
}

/// The path of the VM in `text`.
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
                format!("there is no VM {name}: virtfleetctl vms lists all VMs")
            } else {
                format!("there is no VM {name}: did you mean {}", near.join(", "))
            };
            if list.partial {
                message.push_str(". The inventory is incomplete, so the VM may exist");
            }
            Err(Fail::NotFound(message))
        }
        several => Err(Fail::Ambiguous(format!(
            "several VMs have the name {name}; specify one:\n  {}",
            several.join("\n  ")
        ))),
    }
}
