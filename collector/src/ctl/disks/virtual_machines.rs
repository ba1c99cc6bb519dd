//! Requests about VirtualMachines of the infra cluster.

use http::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use kube::{
    Api, Client, Error,
    api::{ApiResource, ListParams},
    core::{GroupVersionKind, NotUsed, Object},
};
use serde_json::Value;

use crate::{
    ctl::fail::Fail,
    page::not_kubernetes,
    paged_list::{ListError, list},
};

/// A VirtualMachine without its status.
type VirtualMachine = Object<Value, NotUsed>;

pub(super) struct VirtualMachines {
    client: Client,
    resource: ApiResource,
}

/// Why a VirtualMachine was not patched.
pub(super) enum PatchError {
    /// The API server refused the patch, because the VM has changed or an admission webhook denies
    /// it.
    Refused(String),
    /// Another error.
    Failed(String),
}

impl VirtualMachines {
    /// Sends no request.
    pub(super) fn new(client: Client) -> Self {
        let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine");
        Self {
            client,
            resource: ApiResource::from_gvk_with_plural(&kind, "virtualmachines"),
        }
    }

    fn api(&self, namespace: Option<&str>) -> Api<VirtualMachine> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.resource),
            None => Api::all_with(self.client.clone(), &self.resource),
        }
    }

    /// The VMs of a namespace, or of all.
    ///
    /// # Errors
    /// The list cannot be read.
    pub(super) async fn list(&self, namespace: Option<&str>, params: ListParams) -> Result<Vec<Value>, Fail> {
        let place = namespace.map_or_else(String::new, |namespace| format!(" in the namespace {namespace}"));
        let failed = |why: String| Fail::Access(format!("cannot list VirtualMachines{place}: {why}"));
        let listed = list(&self.api(namespace), params).await;
        let listed = listed.map_err(|error| {
            match error {
            ListError::Request(Error::Api(status)) if status.code == 404 => Fail::NotFound(
                "the cluster has no VirtualMachines of KubeVirt: is this the kubeconfig of the infra cluster \
                 (--kubeconfig, --context, KUBECONFIG)?"
                    .to_owned(),
            ),
            ListError::Request(error) => failed(reason(&error, "list")),
            ListError::Page(error) => failed(error.to_string()),
            error @ ListError::TooLong => failed(format!("{error}; select fewer VMs with -n or -l")),
        }
        })?;
        Ok(listed.iter().map(to_value).collect())
    }

    /// One VM; `None` if there is none of that name.
    ///
    /// # Errors
    /// It cannot be read; the text says why.
    pub(super) async fn get(&self, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        let found = self.api(Some(namespace)).get_opt(name).await;
        let found = found.map_err(|error| reason(&error, "get"))?;
        Ok(found.as_ref().map(to_value))
    }

    /// Applies a JSON patch to one VM.
    ///
    /// # Errors
    /// It was refused, or failed.
    pub(super) async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<(), PatchError> {
        let url = format!("{}/{name}", self.api(Some(namespace)).resource_url());
        let request = Request::patch(url)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json-patch+json")
            .body(patch.to_string().into_bytes());
        let request = request.map_err(|error| PatchError::Failed(error.to_string()))?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if matches!(status.code, 409 | 422) => {
                Err(PatchError::Refused(status.message.clone()))
            }
            Err(error) => Err(PatchError::Failed(reason(&error, "patch"))),
        }
    }
}

fn to_value(vm: &VirtualMachine) -> Value {
    serde_json::to_value(vm).unwrap_or_default()
}

/// Why a request failed, and what to do next.
fn reason(error: &Error, verb: &str) -> String {
    match error {
        Error::Api(status) if status.code == 401 => {
            "the kubeconfig's credentials are not accepted: renew them".to_owned()
        }
        Error::Api(status) if status.code == 403 => format!(
            "{}: use a kubeconfig that may {verb} virtualmachines.kubevirt.io",
            status.message
        ),
        Error::Api(status) => status.message.clone(),
        Error::SerdeError(error) => not_kubernetes(error),
        error => format!("{error}: check that the API server can be reached from here"),
    }
}
