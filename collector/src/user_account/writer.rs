//! Reads and writes objects of the kinds that an account needs, in one cluster.

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use virtfleet_collector_core::object_change::{ObjectChange, object_change};

use super::error::ObjectError;

/// What was done with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutResult {
    Unchanged,
    /// It did not exist.
    Created,
    Changed,
}

/// Writes objects to one cluster.
#[derive(Clone)]
pub(crate) struct ObjectWriter {
    pub(crate) client: Client,
    /// Nothing is written.
    pub(crate) dry_run: bool,
}

/// How an object is called: `ClusterRole virtfleet-collector`, `Secret namespace/name`.
pub(crate) fn title(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    match text("/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// The plural of the kinds that are read or written.
fn plural(kind: &str) -> &'static str {
    match kind {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "Secret" => "secrets",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
        _ => "userclusters",
    }
}

impl ObjectWriter {
    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (group, version) = text("/apiVersion")
            .split_once('/')
            .unwrap_or(("", text("/apiVersion")));
        let kind = GroupVersionKind::gvk(group, version, text("/kind"));
        let resource = ApiResource::from_gvk_with_plural(&kind, plural(text("/kind")));
        match text("/metadata/namespace") {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    /// The live object with the kind and name of `object`.
    pub(crate) async fn read(&self, object: &Value) -> Result<Option<Value>, ObjectError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let found = self.api(object).get_opt(name).await;
        let found = found.map_err(ObjectError::of("read", title(object)))?;
        Ok(found.and_then(|found| serde_json::to_value(found).ok()))
    }

    /// Creates or changes an object.
    pub(crate) async fn put(&self, object: &Value) -> Result<PutResult, ObjectError> {
        let live = self.read(object).await?;
        let change = object_change(object, live.as_ref());
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let result = match &change {
            ObjectChange::Keep => PutResult::Unchanged,
            ObjectChange::Create => PutResult::Created,
            ObjectChange::Patch(_) => PutResult::Changed,
        };
        if self.dry_run {
            return Ok(result);
        }
        let written = match change {
            ObjectChange::Keep => return Ok(result),
            ObjectChange::Create => match serde_json::from_value(object.clone()) {
                Ok(new) => self
                    .api(object)
                    .create(&PostParams::default(), &new)
                    .await
                    .map(drop),
                Err(error) => Err(kube::Error::SerdeError(error)),
            },
            ObjectChange::Patch(patch) => {
                let params = PatchParams::default();
                let patched = self.api(object).patch(name, &params, &Patch::Merge(patch)).await;
                patched.map(drop)
            }
        };
        written.map_err(ObjectError::of("write", title(object)))?;
        Ok(result)
    }

    /// Deletes an object if it exists; returns whether it did.
    pub(crate) async fn delete(&self, object: &Value) -> Result<bool, ObjectError> {
        let Some(live) = self.read(object).await? else {
            return Ok(false);
        };
        if self.dry_run {
            return Ok(true);
        }
        let uid = live["metadata"]["uid"].as_str().map(str::to_owned);
        let params = DeleteParams::default().preconditions(Preconditions {
            uid,
            resource_version: None,
        });
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        match self.api(object).delete(name, &params).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(error) => Err(ObjectError::of("delete", title(object))(error)),
        }
    }
}
