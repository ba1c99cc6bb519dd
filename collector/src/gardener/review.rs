//! One AdmissionReview (`admission.k8s.io/v1`): bytes in, value out.
//!
//! The types of kube are not used: they parse the object's metadata and lose what they do not know,
//! and the paths of a patch must fit the object as the API server sent it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};
use virtfleet_delivery::osc::{AgentItems, OscAction, OscPlan, plan};
use virtfleet_runtime::digest::Sha256;

use crate::bounded::bounded;

/// Version and kind of the body, in both directions.
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Maximum characters of namespace and name in the log.
const MAX_NAME_CHARS: usize = 320;
/// Maximum characters of an error, which may quote the request.
const MAX_ERROR_CHARS: usize = 200;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview {
    api_version: String,
    kind: String,
    request: AdmissionRequest,
}

/// The request, as far as it matters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionRequest {
    uid: String,
    operation: String,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    object: Value,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Reviewed {
    pub(super) body: Value,
    pub(super) action: OscAction,
    /// Namespace and name of the object, for the log.
    pub(super) object: String,
    pub(super) warnings: Vec<String>,
}

/// Answers a request. The object is always allowed.
///
/// # Errors
/// The body is no AdmissionReview with a request.
pub(super) fn review(body: &[u8], items: &AgentItems) -> Result<Reviewed, String> {
    let refuse = |error: serde_json::Error| {
        let error = bounded(&error.to_string(), MAX_ERROR_CHARS);
        format!("not an {KIND} of {API_VERSION}: {error}")
    };
    let review: AdmissionReview = serde_json::from_slice(body).map_err(refuse)?;
    if review.api_version != API_VERSION || review.kind != KIND {
        return Err(format!("only {KIND} of {API_VERSION} is supported"));
    }
    let request = review.request;
    if request.uid.is_empty() {
        return Err("request.uid is empty".to_owned());
    }
    let is_write = ["CREATE", "UPDATE"].contains(&request.operation.as_str());
    let is_whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
    let plan = if is_write && is_whole {
        plan(&request.object, items, &|text| {
            Sha256::fingerprint(text.as_bytes())
        })
    } else {
        OscPlan {
            action: OscAction::Skipped,
            patch: Vec::new(),
            warnings: Vec::new(),
        }
    };
    Ok(Reviewed {
        body: response(&request.uid, &plan),
        action: plan.action,
        object: bounded(&format!("{}/{}", request.namespace, request.name), MAX_NAME_CHARS),
        warnings: plan.warnings,
    })
}

fn response(uid: &str, plan: &OscPlan) -> Value {
    let mut response = json!({"uid": uid, "allowed": true});
    if !plan.patch.is_empty() {
        let patch = Value::Array(plan.patch.clone()).to_string();
        response["patchType"] = "JSONPatch".into();
        response["patch"] = STANDARD.encode(patch).into();
    }
    if !plan.warnings.is_empty() {
        response["warnings"] = plan.warnings.clone().into();
    }
    json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
}
