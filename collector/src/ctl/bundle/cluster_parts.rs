//! Parts of a bundle that the cluster of the kubeconfig has: GuestHealth objects, and the settings
//! and logs of the collector.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::{log_parts, part::BundlePart, secrets::clean_yaml};
use crate::{
    ctl::{cluster::kubeconfig, connection_args::ConnectionArgs},
    doctor,
};

/// Timeout of all requests together, without logs.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum objects of a list.
const MAX_OBJECTS: u32 = 500;
/// Name of the packaged Deployment, and of the ConfigMap with its settings.
const SETTINGS: &str = "virtfleet-collector";

/// The parts; what cannot be read is added to `missing`. With `redact` there are no logs: they may
/// have names that no response of the API has, such as those of deleted VMs.
pub(super) fn collect(
    connection: &ConnectionArgs,
    redact: bool,
    missing: &mut Vec<String>,
) -> Vec<BundlePart> {
    let namespace = connection.collector_namespace.as_str();
    let (runtime, client) = match connect(connection) {
        Ok(connected) => connected,
        Err(why) => {
            missing.push(format!("guesthealths.json, settings.json: {why}"));
            missing.push(log_parts::by_hand("logs", &why, namespace));
            return Vec::new();
        }
    };
    let read = async { (guest_healths(&client).await, settings(&client, namespace).await) };
    let limited = runtime.block_on(async { tokio::time::timeout(CLUSTER_TIMEOUT, read).await });
    let mut parts = if let Ok((objects, settings)) = limited {
        objects_and_settings(objects, settings, missing)
    } else {
        let why = "the API server does not answer in time";
        missing.push(format!("guesthealths.json, settings.json: {why}"));
        Vec::new()
    };
    if redact {
        let why = "they may have names that are not known, so --redact-names leaves them out";
        missing.push(log_parts::by_hand("logs", why, namespace));
    } else {
        parts.extend(runtime.block_on(log_parts::collect(&client, namespace, missing)));
    }
    parts
}

/// The cluster of the kubeconfig, or why there is none.
fn connect(connection: &ConnectionArgs) -> Result<(Runtime, Client), String> {
    if connection.server.is_some() {
        return Err("they need a kubeconfig in place of --server".to_owned());
    }
    let config = kubeconfig::find(connection).map_err(|fail| fail.to_string())?;
    let config = config.ok_or("there is no kubeconfig")?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let client = runtime.block_on(async { Client::try_from(config) });
    Ok((runtime, client.map_err(|error| error.to_string())?))
}

fn objects_and_settings(
    objects: Result<Value, kube::Error>,
    settings: Result<Value, kube::Error>,
    missing: &mut Vec<String>,
) -> Vec<BundlePart> {
    let mut parts = Vec::new();
    for (name, about, read) in [
        ("guesthealths.json", "GuestHealth objects", objects),
        (
            "settings.json",
            "ConfigMap with the collector's settings",
            settings,
        ),
    ] {
        match read {
            Ok(value) => parts.push(BundlePart::json(name, about, value)),
            Err(error) => missing.push(format!("{name}: {error}")),
        }
    }
    parts
}

/// The first objects, without their managed fields.
async fn guest_healths(client: &Client) -> Result<Value, kube::Error> {
    let kind = GroupVersionKind::gvk("virtfleet.io", "v1alpha1", "GuestHealth");
    let resource = ApiResource::from_gvk_with_plural(&kind, "guesthealths");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let list = api.list(&ListParams::default().limit(MAX_OBJECTS)).await?;
    let object = |mut object: DynamicObject| {
        object.metadata.managed_fields = None;
        json!({ "namespace": object.metadata.namespace, "name": object.metadata.name, "status": object.data["status"] })
    };
    let is_cut = list.metadata.continue_.is_some_and(|token| !token.is_empty());
    let items: Vec<Value> = list.items.into_iter().map(object).collect();
    Ok(json!({ "items": items, "isCut": is_cut }))
}

async fn settings(client: &Client, namespace: &str) -> Result<Value, kube::Error> {
    // kustomize adds a hash to the name.
    let workload = doctor::Workload::find(client, namespace).await?;
    let name = workload.as_ref().and_then(doctor::Workload::settings_name);
    let name = name.unwrap_or(SETTINGS);
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = api.get(name).await?;
    Ok(shown_settings(&map))
}

/// The settings in a ConfigMap, without secrets.
fn shown_settings(map: &ConfigMap) -> Value {
    let data = map.data.iter().flatten();
    let data: BTreeMap<_, _> = data.map(|(key, text)| (key, clean_yaml(text))).collect();
    json!({ "data": data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown_without_values_of_headers_and_comments() {
        let text = "# the token is PLANTED1\nmla:\n  fleet:\n    remoteWrite:\n      url: https://a/push?token=PLANTED2\n      \
                    headers:\n      - { name: X-Api-Key, value: PLANTED3 }\n      \
                    - { name: X-Scope-OrgID, file: /etc/org }\n";
        let entry = |key: &str, text: &str| (key.to_owned(), text.to_owned());
        let map = ConfigMap {
            data: Some([entry("collector.yaml", text), entry("other", "{ PLANTED4")].into()),
            ..ConfigMap::default()
        };
        let shown = shown_settings(&map);
        let headers = &shown["data"]["collector.yaml"][0]["mla"]["fleet"]["remoteWrite"]["headers"];
        assert_eq!(
            *headers,
            json!([{ "name": "X-Api-Key", "value": "[removed]" }, { "name": "X-Scope-OrgID", "file": "/etc/org" }])
        );
        assert!(!shown.to_string().contains("PLANTED"), "{shown}");
    }
}
