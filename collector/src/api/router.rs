//! Router: checks parameters, waits for a long poll, calls the handler with one snapshot, and adds
//! the revision to its reply.

pub(super) use super::route::ApiRequest;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, RawPathParams, State, rejection::BytesRejection},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::from_fn,
    response::{IntoResponse, Response},
    routing::{get, post},
};

use super::{
    ApiState, REVISION_HEADER,
    error::ApiError,
    gzip, long_poll,
    query::Query,
    routes::{Handler, ROUTES, Route},
    vm_page,
};

/// Maximum size of the body of a request, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// The whole API, for the collector's port.
pub fn router(state: ApiState) -> Router {
    of_routes(state, ROUTES.iter())
}

/// Only `/healthz` and `/readyz`, for clients without authentication.
pub fn probes(state: ApiState) -> Router {
    let probes = ["/healthz", "/readyz"];
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
                               uri: Uri,
                               headers: HeaderMap,
                               path: Path,
                               body: Result<Bytes, BytesRejection>| async move {
                let request = request_of_change(route, api, &uri, &headers, path.0, body)?;
                run(request).await
            };
            router = router.route(route.path, post(change));
            continue;
        }
        let handler = move |State(api): State<ApiState>, uri: Uri, headers: HeaderMap, path: Path| async move {
            answer(route, api, &uri, &headers, path.0)
                .await
                .unwrap_or_else(IntoResponse::into_response)
        };
        router = router.route(route.path, get(handler));
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn(gzip::layer))
        .with_state(state)
}

/// Checks a POST. It must declare JSON: a web page of another origin can send other types without
/// the browser asking this server first (Fetch, CORS-safelisted request-header).
fn request_of_change(
    route: &Route,
    api: ApiState,
    uri: &Uri,
    headers: &HeaderMap,
    path: Vec<(String, String)>,
    body: Result<Bytes, BytesRejection>,
) -> Result<ApiRequest, ApiError> {
    let media_type = headers
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
    Ok(ApiRequest {
        query: Query::parse(route.params, uri)?,
        snapshot: api.fleet.snapshot(),
        routes: ROUTES,
        api,
        path,
        body,
    })
}

async fn answer(
    route: &Route,
    api: ApiState,
    uri: &Uri,
    headers: &HeaderMap,
    path: Vec<(String, String)>,
) -> Result<Response, ApiError> {
    let query = if route.strict {
        Query::parse(route.params, uri)?
    } else {
        Query::default()
    };
    let snapshot = long_poll::snapshot(&api, &query).await?;
    if !route.has_revision() {
        let request = ApiRequest {
            routes: ROUTES,
            api,
            snapshot,
            query,
            path,
            body: Bytes::new(),
        };
        return handle(route.answer, &request).await;
    }
    let revision = snapshot.revision;
    let etag = format!("W/\"{:x}-{revision:x}\"", api.instance);
    let mut response = if if_none_match(headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let request = ApiRequest {
            routes: ROUTES,
            api,
            snapshot,
            query,
            path,
            body: Bytes::new(),
        };
        handle(route.answer, &request).await?
    };
    let out = response.headers_mut();
    out.insert(REVISION_HEADER, HeaderValue::from(revision));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        out.insert(header::ETAG, etag);
    }
    Ok(response)
}

async fn handle(handler: Handler, request: &ApiRequest) -> Result<Response, ApiError> {
    match handler {
        Handler::Snapshot(answer) => answer(request).map(IntoResponse::into_response),
        Handler::Agent => vm_page::page(request).await,
        Handler::Change { .. } => Err(ApiError::internal("a change was requested by GET")),
    }
}

/// RFC 9110, 13.1.2: a list of tags or `*`, compared weakly.
fn if_none_match(headers: &HeaderMap, etag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim() == "*" || opaque(tag) == opaque(etag))
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
#[path = "standby_tests.rs"]
mod standby_tests;
#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
