//! Kubernetes objects of the project: group `virtfleet.io`, version `v1alpha1`.
//! `virtfleet-collector crds` prints their definitions, which are generated from these types.
//!
//! The docstrings are the descriptions in the definitions (`kubectl explain`); their readers are
//! authors of the YAML.

#![expect(
    clippy::duplicated_attributes,
    reason = "each printer column has its type, and several have the same"
)]

mod cluster_source;
mod condition;
mod crds;
mod guest_health;
mod label_propagation;
pub mod publish;
mod selector;
pub mod status;
mod user_cluster;

pub use cluster_source::{
    ClusterSource, ClusterSourceSpec, ClusterSourceStatus, SkippedSourceCluster, SourceCredentials,
    SourceVms, UserClusterTemplate,
};
pub use condition::{Condition, ConditionStatus};
pub use crds::{crds, crds_json, crds_yaml};
pub use guest_health::{
    GuestHealth, GuestHealthFinding, GuestHealthSpec, GuestHealthStatus, LastMigration, Placement,
};
pub use label_propagation::{LabelPropagation, LabelPropagationSpec, LabelPropagationStatus, LabelRule};
pub use selector::{LabelSelector, SelectorOperator, SelectorRequirement};
pub use user_cluster::{
    BasicAuthSecret, BearerSecret, ClusterPhase, HEADER_REFUSED, HTTP_REFUSED, InfraSecretKey,
    InfraSecretRef, KubeconfigRef, MlaSpec, PlacementLabelSpec, PlacementSource, REPLICA_REFUSED,
    RESERVED_LABELS, RemoteWriteAuth, RemoteWriteCompression, RemoteWriteProtocol, RemoteWriteSpec,
    RemoteWriteTls, RequestHeaderSpec, SecretKeyRef, StreamLimitsSpec, UserCluster, UserClusterSpec,
    UserClusterStatus, VmisRef, is_forbidden_header,
};
