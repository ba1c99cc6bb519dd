//! Router: checks parameters, waits for a long poll, calls the handler with one snapshot, and adds
//! the revision to its reply.

pub(super) use super::route::ApiRequest;

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, RawPathParams, State, rejection::BytesRejection},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use virtfleet_collector_core::access::Caller;
use virtfleet_runtime::http::RequestPeer;
use virtfleet_wire::ids::{Namespace, VmKey};

use super::{
    ApiState, REVISION_HEADER, browser_headers,
    error::ApiError,
    etag::if_none_match,
    foreign_page, gzip,
    long_poll::LongPoll,
    query::Query,
    routes::{Handler, ROUTES, Route, RouteAccess},
    tenant_answer, vm_page,
    watch::{FleetWatch, Rights},
    watch_slots::client_of,
    web_files,
};
use crate::access::{AccessControl, AccessNeed, AccessRequest, TenantView};

/// Maximum size of the body of a request, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// The whole API, for the collector's port.
pub fn router(state: ApiState) -> Router {
    of_routes(state, ROUTES.iter())
}

/// Only `/healthz` and `/readyz`, for clients without authentication. The answers name nothing of
/// the fleet.
pub fn probes(mut state: ApiState) -> Router {
    let probes = ["/healthz", "/readyz"];
    state.access = Arc::new(AccessControl::closed());
    of_routes(
        state,
        ROUTES.iter().filter(move |route| probes.contains(&route.path)),
    )
}

fn of_routes(state: ApiState, table: impl Iterator<Item = &'static Route>) -> Router {
    let mut router = Router::new();
    for route in table {
        if let Handler::Change { run, .. } = route.answer {
            let change = move |State(api): State<ApiState>,
                               peer: Option<Extension<Arc<RequestPeer>>>,
                               method: Method,
                               uri: Uri,
                               headers: HeaderMap,
                               path: Path,
                               body: Result<Bytes, BytesRejection>| async move {
                let head = RequestHead {
                    peer: peer.map(|Extension(peer)| peer),
                    method,
                    uri,
                    headers,
                    path: path.0,
                };
                let request = request_of_change(route, api, &head, body).await?;
                run(request).await
            };
            router = router.route(route.path, post(change));
            continue;
        }
        let handler = move |State(api): State<ApiState>,
                            peer: Option<Extension<Arc<RequestPeer>>>,
                            method: Method,
                            uri: Uri,
                            headers: HeaderMap,
                            path: Path| async move {
            let head = RequestHead {
                peer: peer.map(|Extension(peer)| peer),
                method,
                uri,
                headers,
                path: path.0,
            };
            let answered = match route.answer {
                Handler::WebFile => web_files::answer(named(&head.path, "file"), &head.headers),
                Handler::Watch => watch(route, api, head).await,
                _ => answer(route, api, &head).await,
            };
            answered.unwrap_or_else(IntoResponse::into_response)
        };
        router = router.route(route.path, get(handler));
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn(gzip::layer))
        .layer(from_fn_with_state(Arc::clone(&state.access), foreign_page::layer))
        .layer(from_fn(browser_headers::layer))
        .with_state(state)
}

/// Checks a POST: first the caller's rights, then its body. It must declare JSON: a web page of
/// another origin can send other types without the browser asking this server first (Fetch,
/// CORS-safelisted request-header).
async fn request_of_change(
    route: &Route,
    api: ApiState,
    head: &RequestHead,
    body: Result<Bytes, BytesRejection>,
) -> Result<ApiRequest, ApiError> {
    let need = route.access.need(|| named_namespaces(None, &head.path));
    let tenant = enter(&api, head, &need, Entry::first()).await?;
    let media_type = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = media_type
        .and_then(|value| value.split(';').next())
        .map(str::trim);
    if !media_type.is_some_and(|value| value.eq_ignore_ascii_case("application/json")) {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "the body is not declared as JSON",
            "send the header content-type: application/json",
        ));
    }
    let body = body.map_err(|rejection| {
        ApiError::new(
            rejection.status(),
            "invalid_body",
            format!("the body cannot be read: {}", rejection.body_text()),
            format!("send at most {MAX_BODY_BYTES} bytes"),
        )
    })?;
    let query = Arc::new(Query::parse(route.params, &head.uri)?);
    Ok(ApiRequest {
        body,
        ..ApiRequest::new(&api, tenant, &query, &head.path)
    })
}

/// A request without its body.
struct RequestHead {
    peer: Option<Arc<RequestPeer>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    path: Vec<(String, String)>,
}

async fn answer(route: &Route, api: ApiState, head: &RequestHead) -> Result<Response, ApiError> {
    let parsed = if route.strict {
        Query::parse(route.params, &head.uri)
    } else {
        Ok(Query::default())
    };
    let need = route
        .access
        .need(|| named_namespaces(parsed.as_ref().ok(), &head.path));
    let page = matches!(route.answer, Handler::Agent)
        .then(|| named_vm(&head.path))
        .flatten();
    let first = Entry {
        page: page.as_ref(),
        is_repeated: false,
    };
    let (mut tenant, caller) = enter_as(&api, head, &need, first).await?;
    leader_if_needed(route, &api, tenant.is_some())?;
    let query = Arc::new(parsed?);
    let mut poll = LongPoll::new(&api, &query);
    loop {
        poll.mark();
        let begun = Instant::now();
        let request = ApiRequest::new(&api, tenant, &query, &head.path);
        if !route.has_revision() {
            return handle(route.answer, &request).await;
        }
        let tenant_waits = request.tenant.is_some();
        let (revision, pause, answered) = match (&request.tenant, route.answer) {
            (Some(_), Handler::Snapshot(handler)) | (_, Handler::Live(handler)) => {
                let (reply, revision) = tenant_answer::with_revision(request, handler)?;
                let pause = tenant_answer::pause(begun.elapsed());
                (revision, Some(pause), Answered::Made(reply.into_response()))
            }
            _ => (
                request.snapshot.revision,
                None,
                Answered::Later(Box::new(request)),
            ),
        };
        if poll.is_known(revision) {
            let client = client_of(caller.as_ref(), head.peer.as_deref());
            poll.wait(pause, &client, tenant_waits).await?;
            // Meanwhile the caller's rights may have changed.
            tenant = enter(&api, head, &need, Entry::repeated()).await?;
            leader_if_needed(route, &api, tenant.is_some())?;
            continue;
        }
        return with_revision(route, &api, head, revision, answered).await;
    }
}

/// The stream of changes for a caller that has the rights and a free place.
async fn watch(route: &'static Route, api: ApiState, head: RequestHead) -> Result<Response, ApiError> {
    let parsed = Query::parse(route.params, &head.uri);
    let rights = WatchRights { route, api, head };
    let (tenant, caller) = rights.enter(Entry::first()).await?;
    parsed?;
    let client = client_of(caller.as_ref(), rights.head.peer.as_deref());
    let slot = rights.api.watching.take(&client, tenant.is_some())?;
    Ok(FleetWatch::new(rights.api.clone(), rights, tenant, slot).into_response())
}

/// The rights of the client of a stream.
struct WatchRights {
    route: &'static Route,
    api: ApiState,
    head: RequestHead,
}

impl WatchRights {
    async fn enter(&self, entry: Entry<'_>) -> Result<(Option<Arc<TenantView>>, Option<Caller>), ApiError> {
        let need = self.route.access.need(BTreeSet::new);
        let (tenant, caller) = enter_as(&self.api, &self.head, &need, entry).await?;
        leader_if_needed(self.route, &self.api, tenant.is_some())?;
        Ok((tenant, caller))
    }
}

impl Rights for WatchRights {
    async fn review(&self) -> Result<Option<Arc<TenantView>>, ApiError> {
        self.enter(Entry::repeated()).await.map(|(tenant, _)| tenant)
    }
}

/// Refuses a request for the fleet if another process leads: two processes may have seen and
/// remember different things, and clients get one answer. If none leads, this one answers with what
/// it knows.
fn leader_if_needed(route: &Route, api: &ApiState, is_tenant: bool) -> Result<(), ApiError> {
    let is_of_fleet = matches!(route.access, RouteAccess::Fleet | RouteAccess::Infra);
    if !is_of_fleet {
        return Ok(());
    }
    match api.write_access.led_by_another() {
        None => Ok(()),
        Some(_) if is_tenant => Err(ApiError::standby()),
        Some(lease) => Err(ApiError::not_leading(&lease)),
    }
}

/// An answer, or the request of which it is made.
enum Answered {
    Made(Response),
    Later(Box<ApiRequest>),
}

/// The response with its revision; without body if the client has it already.
async fn with_revision(
    route: &Route,
    api: &ApiState,
    head: &RequestHead,
    revision: u64,
    answered: Answered,
) -> Result<Response, ApiError> {
    let etag = format!("W/\"{:x}-{revision:x}\"", api.instance);
    let mut response = if if_none_match(&head.headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match answered {
            Answered::Made(response) => response,
            Answered::Later(request) => handle(route.answer, &request).await?,
        }
    };
    let out = response.headers_mut();
    out.insert(REVISION_HEADER, HeaderValue::from(revision));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        out.insert(header::ETAG, etag);
    }
    Ok(response)
}

/// How a request counts for its caller's limit.
#[derive(Clone, Copy)]
struct Entry<'a> {
    /// The VM whose page is requested.
    page: Option<&'a VmKey>,
    /// The rights of a long poll are reviewed again.
    is_repeated: bool,
}

impl Entry<'_> {
    const fn first() -> Self {
        Self {
            page: None,
            is_repeated: false,
        }
    }

    const fn repeated() -> Self {
        Self {
            page: None,
            is_repeated: true,
        }
    }
}

/// The part of a path with this name; empty if it has none.
fn named<'a>(path: &'a [(String, String)], wanted: &str) -> &'a str {
    path.iter()
        .find(|(name, _)| name == wanted)
        .map_or("", |(_, value)| value)
}

fn named_vm(path: &[(String, String)]) -> Option<VmKey> {
    Some(VmKey {
        namespace: named(path, "namespace").parse().ok()?,
        name: named(path, "name").parse().ok()?,
    })
}

/// Authenticates the caller and reviews its rights. Returns what it may see; none: everything.
async fn enter(
    api: &ApiState,
    head: &RequestHead,
    need: &AccessNeed,
    entry: Entry<'_>,
) -> Result<Option<Arc<TenantView>>, ApiError> {
    enter_as(api, head, need, entry).await.map(|(tenant, _)| tenant)
}

/// As [`enter`], with the caller; none if it was not authenticated.
async fn enter_as(
    api: &ApiState,
    head: &RequestHead,
    need: &AccessNeed,
    entry: Entry<'_>,
) -> Result<(Option<Arc<TenantView>>, Option<Caller>), ApiError> {
    let request = AccessRequest {
        peer: head.peer.as_deref(),
        headers: &head.headers,
        method: head.method.as_str(),
        path: head.uri.path(),
        page: entry.page,
        is_repeated: entry.is_repeated,
    };
    let (scope, caller) = api.access.enter_as(&request, need, &*api.fleet).await?;
    Ok((api.access.tenant_view(&api.fleet, &scope), caller))
}

/// The namespaces that a request names; other names than valid ones have no VM.
fn named_namespaces(query: Option<&Query>, path: &[(String, String)]) -> BTreeSet<Namespace> {
    let of_path = path.iter().filter(|(name, _)| name == "namespace");
    let of_path = of_path.map(|(_, value)| value.as_str());
    let of_query = query.into_iter().flat_map(|query| query.all("namespace"));
    of_path
        .chain(of_query)
        .filter_map(|name| name.parse().ok())
        .collect()
}

impl ApiRequest {
    fn new(
        api: &ApiState,
        tenant: Option<Arc<TenantView>>,
        query: &Arc<Query>,
        path: &[(String, String)],
    ) -> Self {
        let whole = api.fleet.snapshot();
        let mut api = api.clone();
        let snapshot = match &tenant {
            None => Arc::clone(&whole),
            Some(tenant) => {
                let tenant = Arc::clone(tenant);
                api.fleet = tenant;
                api.fleet.snapshot()
            }
        };
        Self {
            api,
            snapshot,
            whole,
            tenant,
            query: Arc::clone(query),
            path: path.to_vec(),
            body: Bytes::new(),
            routes: ROUTES,
        }
    }
}

async fn handle(handler: Handler, request: &ApiRequest) -> Result<Response, ApiError> {
    match handler {
        Handler::Snapshot(answer) | Handler::Live(answer) => answer(request).map(IntoResponse::into_response),
        Handler::Read(answer) => answer(request).await.map(IntoResponse::into_response),
        Handler::Agent => vm_page::page(request).await,
        Handler::Change { .. } | Handler::Watch | Handler::WebFile => {
            Err(ApiError::internal("the route has another handler"))
        }
    }
}

/// The decoded parameters of the path.
struct Path(Vec<(String, String)>);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Path {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut http::request::Parts, state: &S) -> Result<Self, ApiError> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|rejection| {
                let message = format!("the path cannot be decoded: {}", rejection.body_text());
                ApiError::invalid(message, "percent-encode it as UTF-8")
            })?;
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Ok(Self(params.iter().map(own).collect()))
    }
}

async fn unknown_path(uri: Uri) -> ApiError {
    let paths: Vec<_> = ROUTES.iter().map(|route| route.path).collect();
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown_path",
        format!("there is no path {:?}", uri.path()),
        format!("valid paths: {}", paths.join(", ")),
    )
}

async fn unknown_method(method: Method, uri: Uri) -> ApiError {
    let routes = ROUTES.iter().filter(|route| route.matches(uri.path()));
    let methods: Vec<&str> = routes
        .flat_map(|route| match route.method() {
            Method::POST => &["POST"][..],
            _ => &["GET", "HEAD"],
        })
        .copied()
        .collect();
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} does not support {method}", uri.path()),
        format!("use {}", methods.join(" or ")),
    )
}

#[cfg(test)]
#[path = "mla_tests.rs"]
mod mla_tests;
#[cfg(test)]
#[path = "standby_tests.rs"]
mod standby_tests;
#[cfg(test)]
#[path = "tenant_tests.rs"]
mod tenant_tests;
#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
