//! Tests of the page's files over HTTP.

use std::{collections::BTreeSet, fs, path::Path};

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use flate2::{Compression, write::GzEncoder};
use tower::ServiceExt as _;

use super::*;
use crate::{
    access::AccessControl,
    api::{
        browser_headers::POLICY,
        router,
        testing::{self, TestFleet},
    },
};

/// Maximum size of the whole page without data, compressed.
const MAX_PAGE_BYTES: usize = 60 * 1024;

/// The answer of a collector on which every other request needs credentials.
async fn get(path: &str, headers: &[(&str, &str)]) -> Response {
    let mut state = testing::state(TestFleet::new(testing::fleet()));
    state.access = AccessControl::closed().into();
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    router(state).oneshot(request).await.unwrap()
}

#[tokio::test]
async fn the_page_needs_no_credentials_and_its_data_does() {
    let page = get("/", &[]).await;
    assert_eq!(page.status(), 200);
    assert_eq!(page.headers()["content-type"], HTML);
    assert_eq!(get("/api/v1/vms", &[]).await.status(), 401);
    assert_eq!(get("/api/v1/watch", &[]).await.status(), 401);
    assert_eq!(get("/web/none.js", &[]).await.status(), 404);
    assert_eq!(get("/web/..%2Findex.html", &[]).await.status(), 404);
}

#[tokio::test]
async fn every_answer_has_the_headers_for_browsers() {
    for path in ["/", "/web/app.js", "/api/v1/vms", "/healthz", "/nothing"] {
        let answer = get(path, &[]).await;
        let header = |name: &str| answer.headers()[name].to_str().unwrap();
        assert_eq!(header("content-security-policy"), POLICY, "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
    }
    assert!(!POLICY.contains("unsafe") && !POLICY.contains("http"), "{POLICY}");
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(
            POLICY.split("; ").any(|directive| directive == part),
            "{part}: {POLICY}"
        );
    }
}

#[tokio::test]
async fn an_unchanged_file_is_not_sent_again() {
    let first = get("/web/app.js", &[("accept-encoding", "gzip")]).await;
    assert_eq!(first.headers()["content-encoding"], "gzip");
    assert_eq!(first.headers()["cache-control"], "no-cache");
    let etag = first.headers()["etag"].to_str().unwrap().to_owned();
    let second = get("/web/app.js", &[("if-none-match", &etag)]).await;
    assert_eq!(second.status(), 304);
    let body = to_bytes(second.into_body(), usize::MAX).await.unwrap();
    assert!(body.is_empty());
}

fn web() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("web")
}

#[test]
fn every_file_of_the_folder_is_in_the_program() {
    let names: BTreeSet<String> = fs::read_dir(web())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let known: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    assert_eq!(names, known);
}

#[test]
fn the_page_is_small() {
    let size = |file: &WebFile| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        std::io::Write::write_all(&mut encoder, file.body).unwrap();
        encoder.finish().unwrap().len()
    };
    let total: usize = FILES.iter().map(size).sum();
    assert!(total <= MAX_PAGE_BYTES, "{total} bytes");
}

/// Texts of guests are hostile: the page shows them as texts only, and names no other host.
#[test]
fn the_sources_make_no_elements_of_texts_and_name_no_host() {
    for file in FILES {
        let text = std::str::from_utf8(file.body).unwrap();
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "srcdoc",
            "setHTML",
            "localStorage",
            "//cdn",
            "https://",
        ] {
            assert!(!text.contains(word), "{} has {word}", file.name);
        }
        // The names of XML namespaces are no addresses.
        let hosts = text.matches("http://").count();
        assert_eq!(
            hosts,
            text.matches("http://www.w3.org/2000/svg").count(),
            "{}",
            file.name
        );
    }
}

/// Modules that the page lists are fetched at once, not one after the other.
#[test]
fn the_page_preloads_all_its_modules() {
    let page = std::str::from_utf8(FILES[0].body).unwrap();
    for file in FILES.iter().filter(|file| file.media_type == JAVASCRIPT) {
        assert!(page.contains(&format!("\"web/{}\"", file.name)), "{}", file.name);
    }
}
