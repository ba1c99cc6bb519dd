//! Access to the API: who sends a request, and which part of the fleet it may see.
//!
//! ```text
//! request ─▶ presented ─┬─ certificates ── settings ───────────────┐
//!                       ├─ static_tokens ─ file ───────────────────┼─▶ caller and grant ─▶ tenant_view ─▶ handler
//!                       └─ reviews ─ TokenReview ─ SubjectAccess… ─┘          └─▶ audit
//! ```
//! A client certificate is used before a token, and a static token before a TokenReview, so that a
//! static token is never sent to an API server. What cannot be found out is denied.

mod audit;
mod certificates;
mod denied;
mod grant;
mod metrics;
mod presented;
mod pseudonyms;
mod request_limit;
mod reviews;
mod setup;
mod static_tokens;
mod tenant_view;
#[cfg(test)]
mod tests;
pub(crate) mod token_claims;
mod ttl_cache;
#[cfg(test)]
pub(crate) mod two_tenants;

pub use denied::AccessError;
pub use grant::{Grant, GrantError};
pub use metrics::AccessMetrics;
pub use presented::TOKEN_HEADER;
pub use pseudonyms::{PseudonymKeyError, keyed_hash};
pub use reviews::{Reviews, WriteResource};
pub use setup::from_settings;
pub use static_tokens::{StaticTokens, TokenFileError, TokenLineError};
pub use tenant_view::TenantView;

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use http::HeaderMap;
use virtfleet_collector_core::{
    access::{AccessScope, AuthMethod, Caller, redact::KeyedHash},
    view::FleetSnapshot,
};
use virtfleet_runtime::http::RequestPeer;
use virtfleet_wire::ids::{Namespace, VmKey};

use self::{
    audit::{AuditLog, AuditedRequest},
    certificates::CertificateGrants,
    request_limit::{CallerId, RequestLimit, RequestSource},
    reviews::{AccessRight, can_i},
};
use crate::{clock::unix_seconds, config::AccessSettings, fleet::FleetRead};

/// Maximum namespaces of a request that are reviewed alone, before all others.
const MAX_NAMED_NAMESPACES: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessNeed {
    /// Nothing: the answer has no data of the fleet.
    Nothing,
    /// Valid credentials.
    Caller,
    /// To read a part of the fleet: all that the caller may see, or these namespaces of it.
    Read {
        /// Namespaces that the request names; empty: it names none.
        namespaces: BTreeSet<Namespace>,
    },
    /// To read the whole fleet.
    ReadAll,
    /// To change something.
    Write(WriteResource),
}

/// The parts of a request that access depends on.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// The client; none in tests without a server.
    pub peer: Option<&'a RequestPeer>,
    pub headers: &'a HeaderMap,
    pub method: &'a str,
    /// The path, without its query.
    pub path: &'a str,
    /// The VM whose agent's page is requested.
    pub page: Option<&'a VmKey>,
    /// The request was entered before: its caller's rights are reviewed again.
    pub is_repeated: bool,
}

/// Authenticates callers and decides what they may see.
#[derive(Default)]
pub struct AccessControl {
    /// None: every caller may do everything.
    rules: Option<AccessRules>,
    metrics: AccessMetrics,
}

struct AccessRules {
    certificates: CertificateGrants,
    tokens: Option<StaticTokens>,
    reviews: Option<Reviews>,
    hash: Option<KeyedHash>,
    audit: AuditLog,
    limit: RequestLimit,
}

/// How a caller's rights are found.
enum Authenticated {
    /// They are in the settings or in the file of tokens.
    Granted(Caller, Grant),
    /// The API server reviews them.
    Reviewed(Caller),
}

impl AccessControl {
    /// Every caller may do everything: for a listener on loopback without authentication.
    pub fn open() -> Self {
        Self::default()
    }

    /// No caller may see anything.
    pub fn closed() -> Self {
        let rules = AccessRules {
            certificates: CertificateGrants::none(),
            tokens: None,
            reviews: None,
            hash: None,
            audit: AuditLog::new(),
            limit: RequestLimit::new(),
        };
        Self {
            rules: Some(rules),
            metrics: AccessMetrics::default(),
        }
    }

    /// Whether every caller may do everything.
    pub fn is_open(&self) -> bool {
        self.rules.is_none()
    }

    /// Access as the settings say. `reviews` must be there if `settings.token_review` is.
    ///
    /// # Errors
    /// A scope in the settings is not valid.
    pub fn new(
        settings: &AccessSettings,
        tokens: Option<StaticTokens>,
        reviews: Option<Reviews>,
        hash: Option<KeyedHash>,
        metrics: AccessMetrics,
    ) -> Result<Self, GrantError> {
        let rules = AccessRules {
            certificates: CertificateGrants::new(settings)?,
            tokens,
            reviews,
            hash,
            audit: AuditLog::new(),
            limit: RequestLimit::new(),
        };
        Ok(Self {
            rules: Some(rules),
            metrics,
        })
    }

    /// The scope of a request; everything if the caller may see all of the fleet.
    ///
    /// # Errors
    /// The caller is unknown, or has not the right, or this cannot be found out, or it sends too
    /// many requests. The audit log has a line.
    pub async fn enter(
        &self,
        request: &AccessRequest<'_>,
        need: &AccessNeed,
        fleet: &dyn FleetRead,
    ) -> Result<AccessScope, AccessError> {
        self.enter_as(request, need, fleet).await.map(|(scope, _)| scope)
    }

    /// As [`AccessControl::enter`], with the caller; none if it was not authenticated.
    ///
    /// # Errors
    /// As [`AccessControl::enter`].
    pub async fn enter_as(
        &self,
        request: &AccessRequest<'_>,
        need: &AccessNeed,
        fleet: &dyn FleetRead,
    ) -> Result<(AccessScope, Option<Caller>), AccessError> {
        let Some(rules) = &self.rules else {
            return Ok((AccessScope::All, None));
        };
        let (now, seconds) = (Instant::now(), unix_seconds());
        let audited = AuditedRequest {
            method: request.method,
            path: request.path,
            address: request.peer.map(|peer| peer.address.ip()),
        };
        let mut known = None;
        let scope = async {
            let authenticated = rules.authenticate(request, now, seconds).await?;
            let caller = known.insert(authenticated.caller().clone());
            match authenticated {
                Authenticated::Granted(_, grant) => granted(caller, grant, need),
                Authenticated::Reviewed(_) => rules.reviewed(caller, need, fleet, now).await,
            }
        };
        let scope = match (scope.await, need) {
            // A probe without credentials, or with those of a caller that may see nothing.
            (Err(_), AccessNeed::Nothing) => return Ok((AccessScope::nothing(), known)),
            (scope, _) => scope,
        };
        let scope = rules.limited(request, known.as_ref(), scope, fleet, now);
        match (&scope, &known) {
            (Err(error), caller) => {
                self.metrics.was_denied(error.reason());
                rules.audit.denied(&audited, caller.as_ref(), error, now);
            }
            (Ok(AccessScope::All), Some(caller)) if reads(need) => {
                rules.audit.read_across_tenants(&audited, caller, now);
            }
            _ => {}
        }
        scope.map(|scope| (scope, known))
    }

    /// The fleet as a caller with a scope sees it; none if that is the whole fleet.
    pub fn tenant_view(&self, fleet: &Arc<dyn FleetRead>, scope: &AccessScope) -> Option<Arc<TenantView>> {
        if scope.is_all() {
            return None;
        }
        let hash = self.rules.as_ref().and_then(|rules| rules.hash.clone());
        Some(Arc::new(TenantView::new(Arc::clone(fleet), scope.clone(), hash)))
    }
}

impl std::fmt::Debug for AccessControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessControl")
            .field("open", &self.rules.is_none())
            .finish_non_exhaustive()
    }
}

fn sees(scope: &AccessScope, key: &VmKey, fleet: &dyn FleetRead) -> bool {
    let snapshot = fleet.snapshot();
    snapshot.vms.get(key).is_some_and(|vm| scope.has_vm(vm))
}

fn reads(need: &AccessNeed) -> bool {
    matches!(need, AccessNeed::Read { .. } | AccessNeed::ReadAll)
}

impl Authenticated {
    fn caller(&self) -> &Caller {
        match self {
            Self::Granted(caller, _) | Self::Reviewed(caller) => caller,
        }
    }
}

impl AccessRules {
    async fn authenticate(
        &self,
        request: &AccessRequest<'_>,
        now: Instant,
        seconds: u64,
    ) -> Result<Authenticated, AccessError> {
        if let Some(names) = request.peer.and_then(|peer| peer.names.as_deref()) {
            let (caller, grant) = self.certificates.caller(names);
            return Ok(Authenticated::Granted(caller, grant.clone()));
        }
        let Some(token) = presented::bearer(request.headers)? else {
            return Err(self.without_credentials());
        };
        let address = RequestSource::address(request.peer.map(|peer| peer.address.ip()));
        let known = self.tokens.as_ref().and_then(|tokens| tokens.caller(token, now));
        if let Some((caller, grant)) = known {
            return Ok(Authenticated::Granted(caller, grant));
        }
        match &self.reviews {
            Some(reviews) => {
                // An address that guesses tokens causes no more reviews.
                let may_review = || {
                    self.limit
                        .check(address, now)
                        .map_err(|wait| AccessError::TooManyRequests { wait })
                };
                let caller = reviews.caller(token, may_review, now, seconds).await?;
                Ok(Authenticated::Reviewed(caller))
            }
            None => Err(AccessError::unauthenticated(
                "the token is unknown",
                "use a token of the file server.access.tokens of the collector's settings",
            )),
        }
    }

    /// The result for a caller, unless it sends too many requests. The page of a VM that the caller
    /// may see has a limit of its own.
    fn limited(
        &self,
        request: &AccessRequest<'_>,
        caller: Option<&Caller>,
        scope: Result<AccessScope, AccessError>,
        fleet: &dyn FleetRead,
        now: Instant,
    ) -> Result<AccessScope, AccessError> {
        if request.is_repeated || matches!(scope, Err(AccessError::TooManyRequests { .. })) {
            return scope;
        }
        let source = match (caller.map(CallerId::of), request.page, &scope) {
            (Some(caller), Some(key), Ok(scope)) if sees(scope, key, fleet) => {
                RequestSource::Page(caller, key)
            }
            (Some(caller), _, _) => RequestSource::Caller(caller),
            (None, _, _) => RequestSource::address(request.peer.map(|peer| peer.address.ip())),
        };
        match self.limit.take(source, now) {
            Ok(()) => scope,
            Err(wait) => Err(AccessError::TooManyRequests { wait }),
        }
    }

    fn without_credentials(&self) -> AccessError {
        let remedy = match (&self.reviews, &self.tokens) {
            (Some(_), _) => {
                "send a bearer token of the cluster, as virtfleetctl does with a kubeconfig; or a client certificate"
            }
            (None, Some(_)) => {
                "send a token of the file server.access.tokens as `Authorization: Bearer TOKEN`; or a client certificate"
            }
            (None, None) => "send a client certificate that server.tls.clientCA has signed",
        };
        AccessError::unauthenticated("the request has no credentials", remedy)
    }

    /// The scope of a caller whose rights the API server reviews.
    async fn reviewed(
        &self,
        caller: &Caller,
        need: &AccessNeed,
        fleet: &dyn FleetRead,
        now: Instant,
    ) -> Result<AccessScope, AccessError> {
        let Some(reviews) = &self.reviews else {
            return Err(AccessError::unavailable(
                "the settings have no server.access.tokenReview",
            ));
        };
        let named = match need {
            AccessNeed::Caller => return Ok(AccessScope::nothing()),
            AccessNeed::Write(resource) => {
                let right = AccessRight::Write(*resource);
                return if reviews.allows(caller, right.clone(), now).await? {
                    Ok(AccessScope::All)
                } else {
                    Err(lacks(caller, &right))
                };
            }
            AccessNeed::Read { namespaces } => Some(namespaces),
            AccessNeed::Nothing | AccessNeed::ReadAll => None,
        };
        if reviews.allows(caller, AccessRight::ReadAll, now).await? {
            return Ok(AccessScope::All);
        }
        let Some(named) = named else {
            return Err(lacks(caller, &AccessRight::ReadAll));
        };
        // Usually a request names what it wants, so that no other namespace is reviewed.
        if !named.is_empty() && named.len() <= MAX_NAMED_NAMESPACES {
            let found = reviews
                .readable(caller, named.iter().cloned().collect(), now)
                .await?;
            if !found.is_empty() {
                return Ok(AccessScope::of_namespaces(found));
            }
        }
        let all = namespaces_of(&fleet.snapshot());
        let found = reviews.readable(caller, all, now).await?;
        if found.is_empty() {
            return Err(lacks_everything(caller));
        }
        Ok(AccessScope::of_namespaces(found))
    }
}

/// The scope of a caller whose rights are known.
fn granted(caller: &Caller, grant: Grant, need: &AccessNeed) -> Result<AccessScope, AccessError> {
    let settings = match caller.method {
        AuthMethod::StaticToken => "the file server.access.tokens",
        _ => "server.access.certificates",
    };
    let lacks = |what: &str, word: &str| {
        Err(AccessError::forbidden(
            caller,
            format!("{:?} may not {what}", caller.name),
            format!("add the scope `{word}` to it in {settings} of the collector"),
        ))
    };
    match need {
        AccessNeed::Write(_) if !grant.write => lacks("change anything", "admin"),
        AccessNeed::ReadAll if !grant.scope.is_all() => lacks("read data of the whole fleet", "all"),
        AccessNeed::Read { .. } if grant.scope.is_empty() => lacks("read any VM", "namespace:NAME"),
        _ => Ok(grant.scope),
    }
}

fn lacks(caller: &Caller, right: &AccessRight) -> AccessError {
    let (what, role) = match right {
        AccessRight::ReadAll => ("list vms.virtfleet.io in all namespaces", "virtfleet-viewer"),
        AccessRight::Read(_) => ("get vms.virtfleet.io in this namespace", "virtfleet-viewer"),
        AccessRight::Write(WriteResource::Vms) => {
            ("update vms.virtfleet.io in all namespaces", "virtfleet-admin")
        }
        AccessRight::Write(WriteResource::JoinTokens) => (
            "update jointokens.virtfleet.io in all namespaces",
            "virtfleet-admin",
        ),
        AccessRight::Write(WriteResource::CertificateAuthorities) => (
            "update certificateauthorities.virtfleet.io in all namespaces",
            "virtfleet-admin",
        ),
    };
    AccessError::forbidden(
        caller,
        format!("{:?} cannot {what}", caller.name),
        format!(
            "check: {}; grant it with a ClusterRoleBinding to the ClusterRole {role}",
            can_i(right)
        ),
    )
}

fn lacks_everything(caller: &Caller) -> AccessError {
    AccessError::forbidden(
        caller,
        format!("{:?} cannot get vms.virtfleet.io in any namespace that has VMs", caller.name),
        "check: kubectl auth can-i get vms.virtfleet.io -n NAMESPACE; grant it with a RoleBinding in that namespace \
         to the ClusterRole virtfleet-viewer"
            .to_owned(),
    )
}

/// Every namespace that has VMs or belongs to a user cluster.
fn namespaces_of(fleet: &FleetSnapshot) -> Vec<Namespace> {
    let of_vms = fleet.vms.keys().map(|key| &key.namespace);
    let of_clusters = fleet.clusters.iter().filter(|cluster| cluster.known);
    let of_clusters = of_clusters.map(|cluster| &cluster.namespace);
    let all: BTreeSet<&Namespace> = of_vms.chain(of_clusters).collect();
    all.into_iter().cloned().collect()
}
