//! The collector's account in a user cluster: its objects and rights, its token, and the kubeconfig
//! with it. `virtfleetctl cluster` and ClusterSources with `credentials: Account` make it here.
//!
//! ```text
//! packaged manifests ─ objects ─▶ ObjectWriter ─▶ user cluster: account, rights, policy
//!                                 token ────────▶ user cluster: Secret and token ─▶ kubeconfig
//! ```

mod error;
mod kubeconfig;
mod objects;
mod secret;
mod token;
mod writer;

pub(crate) use self::{
    error::ObjectError,
    kubeconfig::{Authority, KubeconfigFacts, UserServer, token_of, validity},
    objects::{
        ClusterRights, admission_policies, live_rights, needs_pods, unneeded_objects, user_cluster_objects,
    },
    secret::{CREDENTIAL, EXPIRES, TO_REVOKE, kubeconfig_of, markers_of, used_kubeconfig},
    token::{
        ACCOUNT, CREDENTIAL_LABEL, Credential, TokenMarker, TokenOwner, is_accepted, markers, request, revoke,
    },
    writer::{ObjectWriter, PutResult, title},
};
