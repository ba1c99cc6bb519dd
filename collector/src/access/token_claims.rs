//! Claims of a JSON Web Token (RFC 7519), not verified. They only decide which review is requested
//! first, for how long its result is remembered, and when a warning says that a token expires.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

/// Claims of a token, not verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UnverifiedClaims {
    /// `aud`.
    pub(crate) audiences: Vec<String>,
    /// `exp`, in seconds since 1970.
    pub(crate) expires: Option<u64>,
    /// `iat`, in seconds since 1970.
    pub(crate) issued: Option<u64>,
    /// `sub`.
    pub(crate) subject: Option<String>,
}

impl UnverifiedClaims {
    /// The claims of a token; empty for one of another form.
    pub(crate) fn of(token: &str) -> Self {
        Self::parse(token).unwrap_or_default()
    }

    fn parse(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Self {
            audiences: match &claims["aud"] {
                Value::Array(all) => all.iter().filter_map(text).collect(),
                one => text(one).into_iter().collect(),
            },
            expires: claims["exp"].as_u64(),
            issued: claims["iat"].as_u64(),
            subject: text(&claims["sub"]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_and_other_tokens_have_none() {
        let token = |claims: &str| format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims));
        let read = UnverifiedClaims::of(&token(r#"{"aud":["a","b"],"exp":7,"sub":"x"}"#));
        assert_eq!(
            (read.audiences, read.expires),
            (vec!["a".to_owned(), "b".to_owned()], Some(7))
        );
        assert_eq!(read.subject.as_deref(), Some("x"));
        assert_eq!(UnverifiedClaims::of(&token(r#"{"aud":"a"}"#)).audiences, ["a"]);
        for other in [
            "",
            "opaque",
            "a.b",
            "a.b.c",
            &token("[]"),
            &token("{"),
            &token(r#"{"aud":7,"exp":"x"}"#),
        ] {
            assert_eq!(
                UnverifiedClaims::of(other),
                UnverifiedClaims::default(),
                "{other}"
            );
        }
    }
}
