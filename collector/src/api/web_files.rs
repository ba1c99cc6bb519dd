//! The web page: files of `collector/web`, which the program contains. They have no data of the
//! fleet, so every client gets them; the page requests its data as any client does.

use std::{collections::BTreeMap, sync::LazyLock};

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use virtfleet_runtime::digest::Sha256;

use super::{error::ApiError, etag::if_none_match};

/// Media type of the page.
pub(super) const HTML: &str = "text/html; charset=utf-8";
/// Media type of its modules.
pub(super) const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

/// Name of the page itself.
const INDEX: &str = "index.html";

macro_rules! files {
    ($($name:literal: $media_type:expr,)*) => {
        &[$(WebFile {
            name: $name,
            media_type: $media_type,
            body: include_bytes!(concat!("../../web/", $name)),
        },)*]
    };
}

struct WebFile {
    name: &'static str,
    media_type: &'static str,
    body: &'static [u8],
}

const FILES: &[WebFile] = files! {
    "index.html": HTML,
    "app.css": CSS,
    "api.js": JAVASCRIPT,
    "app.js": JAVASCRIPT,
    "dom.js": JAVASCRIPT,
    "findings.js": JAVASCRIPT,
    "map.js": JAVASCRIPT,
    "mla.js": JAVASCRIPT,
    "places.js": JAVASCRIPT,
    "route.js": JAVASCRIPT,
    "sections.js": JAVASCRIPT,
    "signin.js": JAVASCRIPT,
    "store.js": JAVASCRIPT,
    "story.js": JAVASCRIPT,
    "table.js": JAVASCRIPT,
    "usage.js": JAVASCRIPT,
    "vm.js": JAVASCRIPT,
    "words.js": JAVASCRIPT,
};

/// Each file with its `ETag`, by name.
static BY_NAME: LazyLock<BTreeMap<&str, (&WebFile, String)>> = LazyLock::new(|| {
    let tagged = |file: &'static WebFile| {
        let mut hash = Sha256::default();
        hash.update(file.body);
        (file.name, (file, format!("W/\"{}\"", hash.hex())))
    };
    FILES.iter().map(tagged).collect()
});

/// The file of this name; the page itself without a name.
pub(super) fn answer(name: &str, headers: &HeaderMap) -> Result<Response, ApiError> {
    let name = if name.is_empty() { INDEX } else { name };
    let Some((file, etag)) = BY_NAME.get(name) else {
        return Err(ApiError::not_found(
            format!("the page has no file {name:?}"),
            "open / in a browser",
        ));
    };
    let mut response = if if_none_match(headers, etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut response = Bytes::from_static(file.body).into_response();
        let media_type = HeaderValue::from_static(file.media_type);
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        response
    };
    let out = response.headers_mut();
    // A browser asks whether its copy is current, so an upgrade shows at once.
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(etag) = HeaderValue::from_str(etag) {
        out.insert(header::ETAG, etag);
    }
    Ok(response)
}

#[cfg(test)]
#[path = "web_files_tests.rs"]
mod tests;
