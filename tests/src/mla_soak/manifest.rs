//! `spec.mla` of a tenant.

use std::{fs, net::SocketAddr};

use anyhow::Result;

use super::proxy::ProxyKind;
use crate::stage::Stage;

/// Sends the samples of a user cluster to a proxy, with further lines of `spec.mla`. A label names
/// the tenant, or a header of which the proxy makes the same label.
pub(super) fn write(
    stage: &Stage,
    cluster: &str,
    (proxy, kind): (SocketAddr, ProxyKind),
    more: &str,
) -> Result<()> {
    let name = format!("clusters/{cluster}/cluster.yaml");
    let text = fs::read_to_string(stage.manifests().join(&name))?;
    let spec = text.split("\n  mla:").next().unwrap_or_default().trim_end();
    let (headers, label) = match kind {
        ProxyKind::Plain => (
            String::new(),
            format!("    externalLabels: {{ tenant: {cluster} }}\n"),
        ),
        ProxyKind::TenantByHeader => (
            format!(", headers: [{{ name: X-Scope-OrgID, value: {cluster} }}]"),
            String::new(),
        ),
    };
    let remote_write = format!("{{ url: \"http://{proxy}/api/v1/write\", timeout: 5s{headers} }}");
    let mla = format!("  mla:\n    remoteWrite: {remote_write}\n{label}{more}");
    stage.write_manifest(&name, &format!("{spec}\n{mla}"))
}
