//! `virtfleetctl install`: checks an installation on the infra cluster, and shows what it consists
//! of. It writes nothing: Helm and kubectl install.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use clap::{Args, Subcommand};
use kube::{
    Api, Client as KubeClient,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use virtfleet_runtime::exit::Code;
use virtfleet_wire::layered::{Node, parse_yaml, to_yaml};

use super::{
    cli::ConnectionArgs,
    client::Client,
    cluster::caller_ways,
    console::Console,
    fail::Fail,
    infra_cluster::InfraCluster,
    install_agents,
    table::{Cell, Table},
};
use crate::{
    doctor::{self, CheckResult},
    objects,
};

/// Maximum time for the checks of the API server, and again for those of the collector.
const CHECK_TIMEOUT: Duration = Duration::from_mins(1);
/// The namespace of the packaged manifests.
const NAMESPACE: &str = "virtfleet";
const SETTINGS: &str = include_str!("../../../packaging/collector/kubernetes/infra/collector.yaml");
/// The packaged manifests, in the order in which they are applied.
const MANIFESTS: [&str; 5] = [
    include_str!("../../../packaging/collector/kubernetes/infra/namespace.yaml"),
    include_str!("../../../packaging/collector/kubernetes/infra/rbac.yaml"),
    include_str!("../../../packaging/collector/kubernetes/infra/access.yaml"),
    include_str!("../../../packaging/collector/kubernetes/infra/networkpolicy.yaml"),
    include_str!("../../../packaging/collector/kubernetes/infra/deployment.yaml"),
];

/// Arguments of `install`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct InstallArgs {
    /// Print each object of an installation, and whether it exists; writes nothing. With `-o yaml`,
    /// the manifests for `kubectl apply --server-side -f -`
    #[arg(long, required = true)]
    dry_run: bool,
    /// Name of the fleet in the certificates of agents; cannot be changed later
    #[arg(long, value_name = "NAME", default_value = "virtfleet.example")]
    trust_domain: String,
    /// The container image of the collector
    #[arg(long, value_name = "IMAGE", default_value = "virtfleet-collector")]
    image: String,
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", value_parser = ["table", "yaml", "json"], default_value = "table")]
    output: String,
    #[command(subcommand)]
    command: Option<InstallCommand>,
}

#[derive(Debug, Clone, Subcommand)]
enum InstallCommand {
    /// Check the installation: API server, KubeVirt, your rights, replicas, versions, definitions,
    /// certificates, settings, user clusters, the objects for Prometheus, rights of the collector,
    /// leader, and whether agents can be reached; each failed check names the next command; exit
    /// code 1 if a check failed
    Check {
        /// Format of the output
        #[arg(short, long, value_name = "FORMAT", value_parser = ["text", "yaml", "json"], default_value = "text")]
        output: String,
    },
}

/// Runs the command.
///
/// # Errors
/// There is no kubeconfig, or the output cannot be written. A failed check is no error, but an exit
/// code.
pub(super) fn run(
    args: &InstallArgs,
    connection: &ConnectionArgs,
    console: &mut Console<'_>,
) -> Result<Code, Fail> {
    match &args.command {
        Some(InstallCommand::Check { output }) => check(output, connection, console),
        None => dry_run(args, connection, console).map(|()| Code::Ok),
    }
}

fn check(output: &str, connection: &ConnectionArgs, console: &mut Console<'_>) -> Result<Code, Fail> {
    let cluster = InfraCluster::of(connection)?;
    let now = (console.now)() / 1000;
    let namespace = connection.collector_namespace.as_str();
    let ways = caller_ways(connection, &cluster.runtime)?;
    let checks = doctor::installation(&cluster.client, namespace, now, &ways, CHECK_TIMEOUT);
    let found = cluster.runtime.block_on(checks);
    let mut results = found.results;
    if found.is_available {
        let client = Client::new(connection)?.ending_at(Instant::now() + CHECK_TIMEOUT);
        results.extend(install_agents::check(&client, namespace));
    }
    console.print(&results_text(&results, output, console.colour))?;
    Ok(if doctor::any_failed(&results) {
        Code::Failure
    } else {
        Code::Ok
    })
}

fn results_text(results: &[CheckResult], output: &str, colour: bool) -> String {
    let json = serde_json::to_value(results).unwrap_or_default();
    match output {
        "json" => format!("{json:#}\n"),
        "yaml" => to_yaml(&json),
        _ if colour => doctor::text(results),
        _ => anstream::adapter::strip_str(&doctor::text(results)).to_string(),
    }
}

fn dry_run(args: &InstallArgs, connection: &ConnectionArgs, console: &mut Console<'_>) -> Result<(), Fail> {
    if connection.collector_namespace != NAMESPACE {
        return Err(Fail::Usage(format!(
            "the manifests are for the namespace {NAMESPACE}; for another one: \
             helm template virtfleet packaging/helm/virtfleet -n {}",
            connection.collector_namespace
        )));
    }
    let objects = manifests(&args.trust_domain, &args.image)?;
    let text = match args.output.as_str() {
        "json" => format!(
            "{:#}\n",
            json!({ "apiVersion": "v1", "kind": "List", "items": objects })
        ),
        "yaml" => objects
            .iter()
            .flat_map(|object| ["---\n".to_owned(), to_yaml(object)])
            .collect(),
        _ => {
            let cluster = InfraCluster::of(connection)?;
            let mut table = Table::new(&["KIND", "NAMESPACE", "NAME", "ACTION"]);
            for object in &objects {
                let action = cluster.runtime.block_on(action(&cluster.client, object));
                let metadata = &object["metadata"];
                let cells = [&object["kind"], &metadata["namespace"], &metadata["name"]];
                let cells = cells.map(|value| Cell::new(value.as_str().unwrap_or_default()));
                table
                    .rows
                    .push(cells.into_iter().chain([Cell::new(action)]).collect());
            }
            let mut text = String::new();
            for line in table.lines(true, console.colour, usize::MAX) {
                writeln!(text, "{line}").ok();
            }
            text
        }
    };
    Ok(console.print(&text)?)
}

/// The objects of the installation: definitions, and the packaged manifests with the settings.
fn manifests(trust_domain: &str, image: &str) -> Result<Vec<Value>, Fail> {
    let broken = |error: &dyn std::fmt::Display| Fail::Start(format!("the packaged manifests: {error}"));
    let mut objects = Vec::new();
    for definition in objects::crds() {
        objects.push(serde_json::to_value(definition).map_err(|error| broken(&error))?);
    }
    for text in MANIFESTS {
        let documents = parse_yaml(text).map_err(|error| broken(&error))?;
        objects.extend(documents.iter().map(Node::to_json));
    }
    for object in &mut objects {
        if object["kind"] == "Deployment" {
            object["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        }
    }
    // Before the Deployment, which mounts it.
    let settings = SETTINGS.replace(
        "trustDomain: virtfleet.example",
        &format!("trustDomain: {trust_domain}"),
    );
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "virtfleet-settings", "namespace": NAMESPACE },
        "data": { "collector.yaml": settings },
    });
    let place = objects.iter().position(|object| object["kind"] == "Deployment");
    objects.insert(place.unwrap_or(objects.len()), map);
    Ok(objects)
}

/// What an installation would do with the object.
async fn action(client: &KubeClient, object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let metadata = &object["metadata"];
    let api: Api<DynamicObject> = match metadata["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    match api.get_metadata_opt(&text(&metadata["name"])).await {
        Ok(None) => "create".to_owned(),
        Ok(Some(_)) => "exists".to_owned(),
        Err(kube::Error::Api(status)) if status.code == 403 => "unknown: you may not read it".to_owned(),
        Err(error) => format!("unknown: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_have_the_given_names() {
        let objects = manifests("fleet.example.org", "registry.example.org/c:1").unwrap_or_default();
        let of_kind = |kind: &str| {
            objects
                .iter()
                .filter(|object| object["kind"] == kind)
                .collect::<Vec<_>>()
        };
        assert_eq!(of_kind("CustomResourceDefinition").len(), 4);
        let pod = &of_kind("Deployment")[0]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "registry.example.org/c:1");
        let settings = of_kind("ConfigMap")[0]["data"]["collector.yaml"]
            .as_str()
            .unwrap_or_default();
        assert!(
            settings.contains("trustDomain: fleet.example.org\n"),
            "{settings}"
        );
        // Namespaces first, or nothing can be created in them.
        let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str()).collect();
        let namespace = kinds.iter().position(|kind| *kind == Some("Namespace"));
        assert!(namespace < kinds.iter().position(|kind| *kind == Some("ServiceAccount")));
    }
}
