//! Refuses requests that a web page of another site makes a browser send.
//!
//! A browser sends in `Host` the site that it requests, and in `Origin` the site of the page. Both
//! are that of the page if its site's DNS name was changed to a loopback address (DNS rebinding),
//! so a listener without authentication answers under loopback names only. No page can choose what
//! its browser sends in these headers.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderName, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::error::ApiError;
use crate::access::AccessControl;

/// Maximum length of a name that an error repeats, in characters.
const MAX_QUOTED_CHARS: usize = 100;

pub(super) async fn layer(
    State(access): State<Arc<AccessControl>>,
    request: Request,
    next: Next,
) -> Response {
    match check(&request, access.is_open()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Refuses another host than loopback if access is open, and another origin than the host if access
/// is open or the request may change something. The settings allow open access on a loopback
/// address only, so its names are all that the listener has. A request without `Host` was sent by
/// no browser.
fn check(request: &Request, is_open: bool) -> Result<(), ApiError> {
    let of_uri = request.uri().authority().map(Authority::as_str);
    let hosts: Vec<&str> = of_uri.into_iter().chain(values(request, header::HOST)).collect();
    if is_open && let Some(host) = hosts.iter().find(|host| !is_loopback(host)) {
        return Err(foreign_host(host));
    }
    if is_open || !request.method().is_safe() {
        let is_own = |origin: &str| !hosts.is_empty() && hosts.iter().all(|host| is_site(origin, host));
        if let Some(origin) = values(request, header::ORIGIN).find(|origin| !is_own(origin)) {
            return Err(foreign_origin(origin));
        }
    }
    Ok(())
}

/// All values of a header; empty for one that is not ASCII.
fn values(request: &Request, name: HeaderName) -> impl Iterator<Item = &str> {
    let all = request.headers().get_all(name).into_iter();
    all.map(|value| value.to_str().unwrap_or_default())
}

/// Whether `host`, with or without a port, is `localhost`, a name below it, or a loopback address.
fn is_loopback(host: &str) -> bool {
    let Some((name, _)) = site(host, 0) else {
        return false;
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        // Browsers resolve every name below localhost to loopback (RFC 6761, 6.3).
        Err(_) => name.trim_end_matches('.').rsplit('.').next() == Some("localhost"),
    }
}

/// Whether an `Origin` is the site `host`.
fn is_site(origin: &str, host: &str) -> bool {
    let (of_page, default_port) = match origin.split_once("://") {
        Some(("http", rest)) => (rest, 80),
        Some(("https", rest)) => (rest, 443),
        // Among them `null`, which pages without a site have.
        _ => return false,
    };
    let of_page = site(of_page, default_port);
    of_page.is_some() && of_page == site(host, default_port)
}

/// Name and port of a site; none if `text` is not one.
fn site(text: &str, default_port: u16) -> Option<(String, u16)> {
    let authority: Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
    let port = authority.port_u16().unwrap_or(default_port);
    Some((authority.host().to_ascii_lowercase(), port))
}

fn foreign_host(host: &str) -> ApiError {
    ApiError::new(
        StatusCode::MISDIRECTED_REQUEST,
        "foreign_host",
        format!(
            "this collector requires no credentials, so it answers to loopback names only, and not to {:?}",
            quoted(host)
        ),
        "use http://localhost:PORT, if need be with `kubectl port-forward` or `ssh -L`; a proxy must send \
         `Host: localhost`. For another name, set server.tls and server.access in the collector's settings",
    )
}

fn foreign_origin(origin: &str) -> ApiError {
    ApiError::new(
        StatusCode::FORBIDDEN,
        "foreign_origin",
        format!(
            "the request comes from a page of another site, {:?}",
            quoted(origin)
        ),
        "use the collector's own page or virtfleetctl; other programs must not send the header Origin",
    )
}

fn quoted(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        access::two_tenants,
        api::{
            router,
            testing::{self, TestFleet},
        },
    };

    /// The status of a request with these headers, and the code of the error.
    async fn sent(is_open: bool, line: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut state = testing::state(TestFleet::new(testing::fleet()));
        if !is_open {
            state.access = two_tenants::access(false);
        }
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = router(state).oneshot(request.body(Body::empty()).unwrap());
        let response = response.await.unwrap();
        let (status, policy) = (
            response.status().as_u16(),
            response.headers().get("content-security-policy").cloned(),
        );
        assert!(policy.is_some(), "{line}");
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let body: serde_json::Value = serde_json::from_slice(&body.unwrap()).unwrap_or_default();
        assert_ne!(body["error"]["remedy"], "", "{line}");
        (
            status,
            body["error"]["code"].as_str().unwrap_or_default().to_owned(),
        )
    }

    const ROTATE: &str = "POST /api/v1/ca/rotate";
    /// Without a body in JSON, no request below rotates anything.
    const PASSED: (u16, &str) = (415, "unsupported_media_type");

    fn is(found: &(u16, String), expected: (u16, &str)) -> bool {
        (found.0, found.1.as_str()) == expected
    }

    #[tokio::test]
    async fn open_access_is_for_loopback_names() {
        for host in [
            "localhost:10912",
            "LocalHost.",
            "collector.localhost",
            "127.0.0.1:10912",
            "127.9.9.9",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
        ] {
            let found = sent(true, "GET /api/v1/vms", &[("host", host)]).await;
            assert_eq!(found, (200, String::new()), "{host}");
            let found = sent(true, ROTATE, &[("host", host)]).await;
            assert!(is(&found, PASSED), "{host}: {found:?}");
        }
        for host in [
            "rebound.example:10912",
            "localhost.example",
            "notlocalhost",
            "0.0.0.0:10912",
            "10.0.0.1",
            "[::]",
            "user@localhost",
            "",
        ] {
            for line in ["GET /", "GET /web/app.js", "GET /api/v1/vms", "GET /none", ROTATE] {
                let found = sent(true, line, &[("host", host)]).await;
                assert!(is(&found, (421, "foreign_host")), "{line} {host}: {found:?}");
            }
        }
        // A second header, or a URI with a host, does not hide the first.
        let both = [("host", "localhost"), ("host", "rebound.example")];
        assert_eq!(sent(true, "GET /", &both).await.0, 421);
        let found = sent(
            true,
            "GET http://rebound.example/api/v1/vms",
            &[("host", "localhost")],
        );
        assert_eq!(found.await.0, 421);
        // Programs that are not browsers may send none.
        assert_eq!(sent(true, "GET /api/v1/vms", &[]).await.0, 200);
    }

    #[tokio::test]
    async fn open_access_is_not_for_pages_of_other_origins() {
        let from = |origin: &'static str| [("host", "localhost:10912"), ("origin", origin)];
        for line in ["GET /api/v1/vms", ROTATE] {
            let own = sent(true, line, &from("http://localhost:10912")).await;
            assert_ne!(own.0, 403, "{line}");
            for origin in [
                "http://rebound.example",
                "http://localhost:3000",
                "http://localhost",
                "http://127.0.0.1:10912",
                "null",
                "chrome-extension://abc",
                "",
            ] {
                let found = sent(true, line, &from(origin)).await;
                assert!(is(&found, (403, "foreign_origin")), "{line} {origin}: {found:?}");
            }
        }
    }

    #[tokio::test]
    async fn with_authentication_any_host_is_served_and_no_change_from_another_site() {
        let page = [("host", "fleet.example"), ("origin", "https://elsewhere.example")];
        assert!(is(
            &sent(false, "GET /api/v1/vms", &page).await,
            (401, "unauthenticated")
        ));
        let found = sent(false, ROTATE, &page).await;
        assert!(is(&found, (403, "foreign_origin")), "{found:?}");
        for (host, origin) in [
            ("fleet.example", "https://fleet.example"),
            ("fleet.example:443", "https://fleet.example"),
            ("fleet.example:10912", "https://FLEET.example:10912"),
        ] {
            let found = sent(false, ROTATE, &[("host", host), ("origin", origin)]).await;
            assert!(is(&found, (401, "unauthenticated")), "{host}: {found:?}");
        }
    }
}
