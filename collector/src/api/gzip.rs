//! Compresses responses of more than [`MIN_SIZE_BYTES`] for clients that accept it.

use std::io::Write as _;

use axum::{
    body::{Body, HttpBody as _, to_bytes},
    extract::Request,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};

/// Smaller responses cost more to compress than compression saves.
const MIN_SIZE_BYTES: u64 = 1024;

/// The middleware. All bodies are in memory already, so collecting them copies nothing.
pub(super) async fn layer(request: Request, next: Next) -> Response {
    let wanted = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("accept-encoding"));
    let large = response
        .body()
        .size_hint()
        .exact()
        .is_some_and(|size| size > MIN_SIZE_BYTES);
    if !wanted || !large {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(plain) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    match encoder.write_all(&plain).and_then(|()| encoder.finish()) {
        Ok(packed) => {
            parts
                .headers
                .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Response::from_parts(parts, Body::from(packed))
        }
        Err(_) => Response::from_parts(parts, Body::from(plain)),
    }
}

/// RFC 9110, 12.5.3: `gzip` (or `x-gzip`), else `*`, with a weight above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let mut any = false;
    for value in headers.get_all(ACCEPT_ENCODING) {
        for offer in value.to_str().unwrap_or_default().split(',') {
            let mut words = offer.split(';').map(str::trim);
            let coding = words.next().unwrap_or_default().to_ascii_lowercase();
            let weight = words
                .find_map(|word| word.strip_prefix("q=").or_else(|| word.strip_prefix("Q=")))
                .map_or(1.0, |weight| weight.parse::<f64>().unwrap_or(0.0));
            match coding.as_str() {
                "gzip" | "x-gzip" => return weight > 0.0,
                "*" => any = weight > 0.0,
                _ => {}
            }
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_encodings() {
        for (offer, wanted) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("GZIP", true),
            ("*", true),
            ("gzip;q=0", false),
            ("*, gzip;q=0", false),
            ("identity", false),
            ("gzip;q=x", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, offer.parse().unwrap());
            assert_eq!(accepts_gzip(&headers), wanted, "{offer:?}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
