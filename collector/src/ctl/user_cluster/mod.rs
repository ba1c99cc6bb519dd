//! `virtfleetctl cluster`: gives the collector access to a user cluster, renews it, and removes it.
//!
//! ```text
//! arguments ─ spec ─▶ UserCluster, rights ─ user_account ─▶ user cluster: account, rights, policy
//!                                                       └─▶ token ─▶ infra cluster: Secret, UserCluster
//! ```
//! `docs/decisions/0047-cluster-verbs.md` has the reasons.

mod add;
pub(super) mod args;
mod clusters;
mod place;
mod remove;
mod rotate;
mod run;
mod secret;
mod spec;

pub(super) use run::run;
