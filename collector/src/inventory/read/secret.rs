//! Secrets: the reference to a `UserCluster`'s kubeconfig, and Secrets in manifests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::field::{Field, Problem};
use crate::mla::settings::SecretValues;

/// A key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::inventory) struct SecretRef {
    pub(in crate::inventory) namespace: String,
    pub(in crate::inventory) name: String,
    pub(in crate::inventory) key: String,
}

/// `spec.kubeconfig.secret` of a `UserCluster`; none without `spec.kubeconfig`.
pub(in crate::inventory) fn kubeconfig_secret(object: &Field<'_>) -> Result<Option<SecretRef>, Problem> {
    let kubeconfig = object.at("spec.kubeconfig")?;
    if !kubeconfig.is_there() {
        return Ok(None);
    }
    let secret = kubeconfig.get("secret")?;
    let text = |name| Ok(secret.get(name)?.required_text()?.to_owned());
    Ok(Some(SecretRef {
        namespace: text("namespace")?,
        name: text("name")?,
        key: secret.get("key")?.text()?.unwrap_or("kubeconfig").to_owned(),
    }))
}

/// A Secret of a manifest. `Debug` shows only its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::inventory) struct ManifestSecret {
    /// Its namespace, if the manifest has one.
    pub(in crate::inventory) namespace: Option<String>,
    pub(in crate::inventory) name: String,
    pub(in crate::inventory) values: SecretValues,
}

/// A `Secret`: its `data` in Base64, and its `stringData`, which has precedence. No message
/// contains a value.
pub(in crate::inventory) fn secret(object: &Field<'_>) -> Result<ManifestSecret, Problem> {
    let mut values = Vec::new();
    for (part, is_base64) in [("data", true), ("stringData", false)] {
        let part = object.get(part)?;
        for key in part.keys()? {
            let field = part.get(key)?;
            let text = match field.json() {
                Some(Value::String(text)) => text,
                // YAML has no text for an empty value.
                None => String::new(),
                Some(_) => return Err(field.problem("must be a string; quote it")),
            };
            let value = if is_base64 {
                let compact: String = text.split_ascii_whitespace().collect();
                STANDARD
                    .decode(compact)
                    .map_err(|_| field.problem("is not Base64; use stringData for plain text"))?
            } else {
                text.into_bytes()
            };
            values.push((key.to_owned(), value));
        }
    }
    Ok(ManifestSecret {
        namespace: object.at("metadata.namespace")?.text()?.map(str::to_owned),
        name: object.at("metadata.name")?.required_text()?.to_owned(),
        values: values.into_iter().collect(),
    })
}
