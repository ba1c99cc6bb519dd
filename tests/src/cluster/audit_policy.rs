//! What the API server writes into its audit log, and where.

pub(super) const FILE: &str = "audit.log";

/// Who asked for what; for changes of Nodes also what was sent and answered. Nothing of what the server asks itself and of
/// what looks whether it lives.
pub(super) const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*"]
- level: RequestResponse
  verbs: [patch, update]
  resources: [{ group: "", resources: [nodes, nodes/status] }]
- level: Metadata
"#;
