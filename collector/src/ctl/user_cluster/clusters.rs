//! The two clusters of a command: kubeconfigs, and what is checked about them before anything is
//! written.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use super::{
    args::{BothClusters, TokenArgs},
    place::Place,
};
use crate::{
    ctl::{cluster::kubeconfig, connection_args::ConnectionArgs, console::Console, fail::Fail},
    inventory::cluster::check_server,
    user_account::{Authority, KubeconfigFacts, ObjectWriter, UserServer},
};

/// The user cluster as its admin reaches it, and as the collector will.
pub(super) struct UserSide {
    pub(super) place: Place,
    /// For the collector.
    pub(super) server: UserServer,
}

pub(super) fn infra_config(clusters: &BothClusters, connection: &ConnectionArgs) -> Result<Config, Fail> {
    let mut connection = connection.clone();
    connection.kubeconfig.clone_from(&clusters.infra_kubeconfig);
    connection.context.clone_from(&clusters.infra_context);
    kubeconfig::find(&connection)?.ok_or_else(|| {
        Fail::Usage(
            "there is no kubeconfig of the infra cluster; set --infra-kubeconfig or KUBECONFIG".into(),
        )
    })
}

/// The user cluster of `--kubeconfig`; notes what the collector's kubeconfig will not have of it.
pub(super) async fn user(
    clusters: &BothClusters,
    token: &TokenArgs,
    dry_run: bool,
    console: &mut Console<'_>,
) -> Result<UserSide, Fail> {
    let Some(file) = &clusters.kubeconfig else {
        return Err(Fail::Usage(
            "set --kubeconfig to a kubeconfig of an admin of the user cluster".into(),
        ));
    };
    let shown = file.display();
    let unusable =
        |error: &dyn std::fmt::Display| Fail::Usage(format!("--kubeconfig {shown} cannot be used: {error}"));
    let mut text = Kubeconfig::read_from(file).map_err(|error| unusable(&error))?;
    let chosen = clusters.context.clone().or_else(|| text.current_context.clone());
    let facts = KubeconfigFacts::of(&text, chosen.as_deref()).map_err(|why| unusable(&why))?;
    for warning in facts.warnings() {
        console.note(&format!("warning: --kubeconfig {shown}: {warning}"));
    }
    let authority = match (&token.certificate_authority, facts.authority) {
        (Some(file), _) => read(file)?,
        (None, Authority::Data(pem)) => pem,
        (None, Authority::File(file)) => read(Path::new(&file))?,
        (None, Authority::None) => {
            return Err(Fail::Usage(format!(
                "--kubeconfig {shown} has no certificate-authority-data, and the collector verifies API servers; \
                 set --certificate-authority to a PEM file with the API server's authority"
            )));
        }
    };
    let server = token.api_server.clone().unwrap_or(facts.server);
    check_server(&server).map_err(|why| {
        Fail::Usage(format!(
            "the collector would refuse this API server: {why}; set --api-server"
        ))
    })?;
    let options = KubeConfigOptions {
        context: clusters.context.clone(),
        ..KubeConfigOptions::default()
    };
    if token.certificate_authority.is_some() {
        use_authority(&mut text, &authority);
    }
    let config = Config::from_custom_kubeconfig(text, &options).await;
    let config = config.map_err(|error| unusable(&error))?;
    Ok(UserSide {
        place: place("user cluster", config, dry_run)?,
        server: UserServer {
            url: server,
            authority,
        },
    })
}

/// The user cluster of `--kubeconfig`, to remove things from it.
pub(super) async fn user_place(clusters: &BothClusters, dry_run: bool) -> Result<Place, Fail> {
    let file = clusters.kubeconfig.as_ref().ok_or_else(|| {
        Fail::Usage(
            "set --kubeconfig to a kubeconfig of an admin of the user cluster, or --infra-only to remove nothing there"
                .into(),
        )
    })?;
    let options = KubeConfigOptions {
        context: clusters.context.clone(),
        ..KubeConfigOptions::default()
    };
    let unusable = |error: &dyn std::fmt::Display| {
        Fail::Usage(format!("--kubeconfig {} cannot be used: {error}", file.display()))
    };
    let text = Kubeconfig::read_from(file).map_err(|error| unusable(&error))?;
    let config = Config::from_custom_kubeconfig(text, &options).await;
    place("user cluster", config.map_err(|error| unusable(&error))?, dry_run)
}

/// Verifies every API server of a kubeconfig with an authority in PEM.
fn use_authority(kubeconfig: &mut Kubeconfig, pem: &str) {
    for cluster in &mut kubeconfig.clusters {
        if let Some(cluster) = &mut cluster.cluster {
            cluster.certificate_authority = None;
            cluster.certificate_authority_data = Some(STANDARD.encode(pem));
            cluster.insecure_skip_tls_verify = None;
        }
    }
}

fn read(file: &Path) -> Result<String, Fail> {
    fs::read_to_string(file).map_err(|error| Fail::Input(format!("cannot read {}: {error}", file.display())))
}

/// A cluster with a client. Sends no request.
pub(super) fn place(name: &'static str, mut config: Config, dry_run: bool) -> Result<Place, Fail> {
    config.default_retry = false;
    let client = Client::try_from(config).map_err(|error| Fail::Start(error.to_string()))?;
    Ok(Place {
        name,
        writer: ObjectWriter { client, dry_run },
    })
}

/// Checks before the first write that the infra cluster has the kinds and the namespace.
pub(super) async fn check_infra(infra: &Place, namespace: &str) -> Result<(), Fail> {
    let path = "/apis/virtfleet.io/v1alpha1/userclusters?limit=1";
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| Fail::Start(error.to_string()))?;
    match infra.client().request::<serde_json::Value>(request).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Err(Fail::NotFound(
                "the infra cluster has no UserClusters: is this the right kubeconfig (--infra-kubeconfig, KUBECONFIG)? \
                 If so: virtfleet-collector crds | kubectl apply -f -"
                    .into(),
            ));
        }
        Err(error) => return Err(infra.failed("list", "UserClusters", &error)),
    }
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    if infra.read(&object).await?.is_none() {
        return Err(Fail::NotFound(format!(
            "the infra cluster has no namespace {namespace}, in which the collector reads kubeconfigs: \
             install the collector first, or set --secret-namespace"
        )));
    }
    Ok(())
}
