//! HTTP responses: status, content type, and gzip if the client accepts it.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{HeaderMap, Response, StatusCode, header};

/// A response with its whole body.
pub(super) type Answer = Response<Full<Bytes>>;

/// A plain-text response.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    with_type(status, "text/plain; charset=utf-8", Bytes::from(text.into()))
}

pub(super) fn with_type(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    answer
}

/// Marks a response as compressed.
pub(super) fn gzipped(mut answer: Answer) -> Answer {
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    headers.insert(header::VARY, header::HeaderValue::from_static("accept-encoding"));
    answer
}

/// True if the client accepts gzip: it is listed in `Accept-Encoding`, and not with `q=0`.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused = parts.any(|part| {
            part.split_once('=')
                .is_some_and(|(key, q)| key.trim() == "q" && q.trim().parse() == Ok(0.0))
        });
        named && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_if_the_client_accepts_it() {
        let takes = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static(value));
            takes_gzip(&headers)
        };
        for yes in ["gzip", "deflate, GZIP;q=0.5", "gzip;q=1.0, identity; q=0.5"] {
            assert!(takes(yes), "{yes}");
        }
        for no in ["", "identity", "gzip;q=0", "gzip; q=0.000", "xgzip"] {
            assert!(!takes(no), "{no}");
        }
    }
}
