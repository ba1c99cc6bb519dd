//! The audit policy of the API server and the path of its log.

pub(super) const FILE: &str = "audit.log";

/// Logs every request; for changes of Nodes also the bodies of request and response, and for
/// patches of GuestHealth that of the request. Requests of the server to itself and health probes
/// are not logged.
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
- level: Request
  verbs: [patch]
  resources: [{ group: virtfleet.io, resources: [guesthealths, guesthealths/status] }]
- level: Metadata
"#;
