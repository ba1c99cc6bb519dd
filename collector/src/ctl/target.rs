//! The request of a command: path, query, and the view for the response.

use virtfleet_collector_core::{
    join_token::JoinTokenId,
    view::{List, VmView},
};
use virtfleet_runtime::exit::Code;
use virtfleet_wire::ids::{InvalidId, Namespace, NodeName, VmName};

use super::{
    cli::{
        CaCommand, EnrolmentCommand, LabelsCommand, OutputOptions, PolicyCommand, QueryCommand, TokenCommand,
        TopArg,
    },
    client::{ApiResponse, Client},
    fail::Fail,
    filters::query,
    mla_args::{MlaArgs, MlaCommand},
    view::{self, ViewOptions},
};

/// The summary of the fleet.
const STATUS_PATH: &str = "/api/v1/status";
const PLACEMENT_PATH: &str = "/api/v1/placement";
/// Streams of samples.
const QUEUES_PATH: &str = "/api/v1/queues";
/// Metrics pages of VMs.
const TARGETS_PATH: &str = "/api/v1/targets";
/// What-if of a drain, after the path of an infra node.
const DRAIN_PATH_END: &str = "/drain";

/// Formats a response as text.
type View = fn(&ApiResponse, &ViewOptions) -> Result<String, Fail>;

/// One request to the API.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) view: View,
    /// Whether it is a list, which may be partial and has a summary line.
    pub(super) list: bool,
}

impl Target {
    /// The exit code of a command that succeeded.
    pub(super) fn exit_code(&self, answer: &ApiResponse) -> Code {
        match self.path.as_str() {
            STATUS_PATH => view::exit_code(answer),
            PLACEMENT_PATH => view::placement_exit_code(answer),
            QUEUES_PATH => view::queues_exit_code(answer),
            path if path.ends_with(DRAIN_PATH_END) => view::drain_exit_code(answer),
            _ => Code::Ok,
        }
    }

    /// The request of `command` at a time, in milliseconds since 1970. A VM without namespace is
    /// looked up first.
    pub(super) fn of(command: &QueryCommand, client: &Client, now_ms: u64) -> Result<Self, Fail> {
        Ok(match command {
            QueryCommand::Status { .. } => Self {
                path: STATUS_PATH.to_owned(),
                query: Vec::new(),
                view: view::status,
                list: false,
            },
            QueryCommand::Vms { filters, .. } => Self::list("/api/v1/vms", filters.query(), view::vms),
            QueryCommand::Why { name, .. } => Self {
                path: vm_path(name, client)?,
                query: Vec::new(),
                view: view::why,
                list: false,
            },
            QueryCommand::Events { filters, .. } => {
                Self::list("/api/v1/events", filters.query(now_ms), view::events)
            }
            QueryCommand::Migrations { filters, .. } => {
                Self::list("/api/v1/migrations", filters.query(now_ms), view::migrations)
            }
            QueryCommand::Vm {
                change: Some(change), ..
            }
            | QueryCommand::Enrolment(EnrolmentCommand::Change(change)) => Self {
                path: format!("{}/enrolment", vm_path(change.change().1, client)?),
                query: Vec::new(),
                view: view::enrolment,
                list: false,
            },
            QueryCommand::Vm { name, spec, .. } => {
                let path = vm_path(name.as_deref().unwrap_or_default(), client)?;
                Self::one(path, if *spec { view::vm_spec } else { view::vm })
            }
            QueryCommand::History { name, range, .. } => Self {
                query: vec![("range", range.clone())],
                ..Self::one(format!("{}/history", vm_path(name, client)?), view::history)
            },
            QueryCommand::Hosts {
                zone, region, ready, ..
            } => {
                let query = query(&[("zone", zone), ("region", region), ("ready", ready)]);
                Self::list("/api/v1/hosts", query, view::hosts)
            }
            QueryCommand::Host { name, .. } => Self::one(host_path(name)?, view::host),
            QueryCommand::Drain { name, .. } => {
                Self::one(format!("{}{DRAIN_PATH_END}", host_path(name)?), view::drain)
            }
            QueryCommand::Placement { .. } => Self::one(PLACEMENT_PATH.to_owned(), view::placement),
            QueryCommand::Top { what, by, limit, .. } => {
                let query = vec![("by", by.clone()), ("limit", limit.to_string())];
                match what {
                    TopArg::Vms => Self::list("/api/v1/top/vms", query, view::top_vms),
                    TopArg::Hosts => Self::list("/api/v1/top/hosts", query, view::top_hosts),
                }
            }
            QueryCommand::Clusters { .. } => Self::list("/api/v1/clusters", Vec::new(), view::clusters),
            QueryCommand::Findings {
                severity,
                scope,
                vms,
                host,
                ..
            } => {
                let mut query = query(&[("severity", severity), ("scope", scope), ("node", &host.host)]);
                query.extend(vms.query());
                Self::list("/api/v1/findings", query, view::findings)
            }
            QueryCommand::Mla(args) => Self::mla(args),
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

    fn mla(args: &MlaArgs) -> Self {
        let (path, query, view): (_, _, View) = match &args.command {
            None => (QUEUES_PATH, Vec::new(), view::streams),
            Some(MlaCommand::Queues { filters, .. }) => (QUEUES_PATH, filters.query(), view::queues),
            Some(MlaCommand::Targets { filters, .. }) => (TARGETS_PATH, filters.query(), view::targets),
        };
        Self::list(path, query, view)
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

    /// The details of one object.
    fn one(path: String, view: View) -> Self {
        Self {
            path,
            query: Vec::new(),
            view,
            list: false,
        }
    }

    fn list(path: &str, query: Vec<(&'static str, String)>, view: View) -> Self {
        Self {
            path: path.to_owned(),
            query,
            view,
            list: true,
        }
    }
}

pub(super) fn show(command: &QueryCommand) -> &OutputOptions {
    match command {
        QueryCommand::Vm {
            change: Some(change), ..
        }
        | QueryCommand::Enrolment(EnrolmentCommand::Change(change)) => change.show(),
        QueryCommand::Mla(args) => args.show(),
        QueryCommand::Status { show, .. }
        | QueryCommand::Why { show, .. }
        | QueryCommand::Events { show, .. }
        | QueryCommand::Migrations { show, .. }
        | QueryCommand::Vms { show, .. }
        | QueryCommand::Vm { show, .. }
        | QueryCommand::History { show, .. }
        | QueryCommand::Hosts { show, .. }
        | QueryCommand::Host { show, .. }
        | QueryCommand::Drain { show, .. }
        | QueryCommand::Placement { show }
        | QueryCommand::Top { show, .. }
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

/// The path of an infra node.
fn host_path(name: &str) -> Result<String, Fail> {
    let name: NodeName = name
        .parse()
        .map_err(|error: InvalidId| Fail::Usage(error.to_string()))?;
    Ok(format!("/api/v1/hosts/{name}"))
}

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
