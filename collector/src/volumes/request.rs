//! One request for a claim or a DataVolume, and what its answer means.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client, Error,
    api::ApiResource,
    core::{GroupVersionKind, Object, Status},
};
use serde::Deserialize;
use virtfleet_collector_core::volumes::{ClaimState, DataVolumeState, ReadAnswer};
use virtfleet_wire::ids::{ClaimName, Namespace};

use super::objects::{ClaimFields, DataVolumeFields, claim_of, data_volume_of};
use crate::inventory::cluster::explain;

/// Maximum time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn read_claim(
    client: &Client,
    namespace: &Namespace,
    name: &ClaimName,
) -> ReadAnswer<ClaimState> {
    let resource = ApiResource::erase::<PersistentVolumeClaim>(&());
    let api: Api<ClaimFields> = Api::namespaced_with(client.clone(), namespace.as_str(), &resource);
    read(&api, name, claim_of).await
}

pub(super) async fn read_data_volume(
    client: &Client,
    namespace: &Namespace,
    name: &ClaimName,
) -> ReadAnswer<DataVolumeState> {
    let kind = GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "DataVolume");
    let resource = ApiResource::from_gvk_with_plural(&kind, "datavolumes");
    let api: Api<DataVolumeFields> = Api::namespaced_with(client.clone(), namespace.as_str(), &resource);
    read(&api, name, data_volume_of).await
}

async fn read<P, U, T>(
    api: &Api<Object<P, U>>,
    name: &ClaimName,
    convert: impl FnOnce(Object<P, U>) -> T,
) -> ReadAnswer<T>
where
    P: Clone + std::fmt::Debug + for<'de> Deserialize<'de>,
    U: Clone + Default + std::fmt::Debug + for<'de> Deserialize<'de>,
{
    let request = api.get(name.as_str());
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(object)) => ReadAnswer::Found(convert(object)),
        Ok(Err(error)) => of_error(&error, name),
        Err(_) => {
            let seconds = REQUEST_TIMEOUT.as_secs();
            ReadAnswer::failed(&format!("the API server did not answer in {seconds} s"))
        }
    }
}

fn of_error<T>(error: &Error, name: &ClaimName) -> ReadAnswer<T> {
    match error {
        Error::Api(status) if status.code == 403 => ReadAnswer::Denied,
        Error::Api(status) if status.code == 404 && names(status, name) => ReadAnswer::NotFound,
        Error::Api(status) if status.code == 404 => ReadAnswer::NotServed,
        other => ReadAnswer::failed(&explain(other, false).1),
    }
}

/// Whether an answer is about the object of this name. An API server that does not serve a kind
/// answers without naming an object.
fn names(status: &Status, name: &ClaimName) -> bool {
    let details = status.details.as_ref();
    details.is_some_and(|details| details.name == name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: serde_json::Value) -> ReadAnswer<()> {
        let status: Status = serde_json::from_value(status).unwrap();
        of_error(&Error::Api(status.boxed()), &"root".parse().unwrap())
    }

    #[test]
    fn an_absent_object_is_not_an_absent_kind() {
        let not_found = json!({
            "status": "Failure", "reason": "NotFound", "code": 404,
            "message": "datavolumes.cdi.kubevirt.io \"root\" not found",
            "details": { "name": "root", "group": "cdi.kubevirt.io", "kind": "datavolumes" },
        });
        assert_eq!(answer(not_found), ReadAnswer::NotFound);
        let not_served = json!({
            "status": "Failure", "reason": "NotFound", "code": 404, "details": {},
            "message": "the server could not find the requested resource",
        });
        assert_eq!(answer(not_served), ReadAnswer::NotServed);
        assert_eq!(
            answer(json!({ "code": 404, "message": "404 page not found" })),
            ReadAnswer::NotServed
        );
        assert_eq!(answer(json!({ "code": 403, "message": "m" })), ReadAnswer::Denied);
        // A token that is being replaced says nothing about rights.
        let expired = answer(json!({ "code": 401, "message": "Unauthorized" }));
        assert!(matches!(expired, ReadAnswer::Failed(_)), "{expired:?}");
        let busy = answer(json!({ "code": 503, "message": "\u{1b}[2Jbusy" }));
        let ReadAnswer::Failed(text) = busy else {
            panic!("{busy:?}");
        };
        assert!(text.contains("503") && !text.contains('\u{1b}'), "{text}");
    }
}
