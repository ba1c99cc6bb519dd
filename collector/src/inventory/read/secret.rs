//! Reference to a `UserCluster`'s kubeconfig.

use super::field::{Field, Problem};

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
