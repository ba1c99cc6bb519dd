//! Sources of user clusters: which UserClusters a KKP seed, a Cluster API management cluster or a
//! garden asks for. Values in, values out; `collector/src/sources` reads and writes.
//!
//! ```text
//! objects of the source ─ read ─▶ SourceCluster ─┐
//! UserClusters of the infra cluster ─────────────┴─ plan ─▶ keep, remove, skipped
//! ```
//! With `credentials: Account`, `account_step` says what is due for the account of one cluster, and
//! the `AccountQueue` in which order the accounts of all clusters are worked on.

mod account;
mod account_queue;
mod credential;
mod found;
mod kind;
mod plan;
mod read;
#[cfg(test)]
mod tests;

/// Label of UserClusters and Secrets: the name of the ClusterSource that made them.
pub const SOURCE_LABEL: &str = "virtfleet.io/cluster-source";
/// Label of UserClusters whose cluster hibernates (`true`): its API server is off on purpose.
pub const HIBERNATES_LABEL: &str = "virtfleet.io/hibernates";

pub use self::{
    account::{AccountFacts, AccountStep, KnownAccount, account_step},
    account_queue::{AccountKey, AccountQueue},
    credential::{CredentialStep, KnownCredential, credential_step},
    found::{ClusterCondition, SourceCluster},
    kind::SourceKind,
    plan::{
        ExistingCluster, HeldRemoval, NamePattern, SkipReason, SkippedCluster, SourcePlan, SourceRules,
        WantedCluster, plan,
    },
    read::read_cluster,
};
