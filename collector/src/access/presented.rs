//! The credentials of a request.

use http::{HeaderMap, HeaderName, header::AUTHORIZATION};

use super::AccessError;

/// Header with a bearer token for the collector. An API server's proxy removes `Authorization`,
/// which is for the API server, and forwards this one.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("virtfleet-authorization");

/// Maximum length of a token.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The bearer token of a request; none without the header. [`TOKEN_HEADER`] is used before
/// `Authorization`.
///
/// # Errors
/// The header occurs twice, or is not `Bearer` and a token (RFC 6750, section 2.1).
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, AccessError> {
    for name in [&TOKEN_HEADER, &AUTHORIZATION] {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next() else { continue };
        let refuse = |why: &str| {
            Err(AccessError::unauthenticated(
                format!("the header {name} {why}"),
                format!("send it once, as `{name}: Bearer TOKEN`"),
            ))
        };
        if values.next().is_some() {
            return refuse("occurs twice");
        }
        let token = value
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        return match token {
            Some(token) if token.len() > MAX_TOKEN_BYTES => refuse("has a token that is too long"),
            Some(token) if is_token(token) => Ok(Some(token)),
            _ => refuse("is not a bearer token"),
        };
    }
    Ok(None)
}

/// The characters of a token (RFC 6750, `b64token`).
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_and_nothing_else() {
        let read = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            bearer(&headers).map(|token| token.map(str::to_owned))
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(
            read(&[("authorization", "Bearer a.b-c_d~e+f/g==")]),
            Ok(Some("a.b-c_d~e+f/g==".into()))
        );
        assert_eq!(read(&[("authorization", "bearer x")]), Ok(Some("x".into())));
        let both = [
            ("authorization", "Bearer theirs"),
            ("virtfleet-authorization", "Bearer ours"),
        ];
        assert_eq!(read(&both), Ok(Some("ours".into())));
        let long = format!("Bearer {}", "x".repeat(MAX_TOKEN_BYTES + 1));
        for wrong in [
            "Basic YTpi",
            "Bearer",
            "Bearer ",
            "Bearer a b",
            "Bearer a\u{7f}",
            "x",
            &long,
        ] {
            let Ok(value) = http::HeaderValue::from_str(wrong) else {
                continue;
            };
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
            bearer(&headers).unwrap_err();
        }
        read(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]).unwrap_err();
    }
}
