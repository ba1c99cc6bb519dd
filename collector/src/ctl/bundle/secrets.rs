//! Removes secrets from texts: private keys and certificates in PEM, tokens, passwords.
//!
//! Nothing that the API serves has secrets. This is the second line of defence: texts of guests
//! and of errors may quote anything.

use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
use serde_json::Value;
use virtfleet_wire::layered::{Node, parse_yaml};

/// What stands in place of a secret.
const REMOVED: &str = "[removed]";

/// Parts of the names of fields whose values are never shown, in lower case.
const SECRET_FIELDS: [&str; 7] = [
    "password",
    "passwd",
    "secret",
    "credential",
    "authorization",
    "privatekey",
    "kubeconfig",
];

/// Texts that are secrets, wherever they are.
static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // A whole block, also with escaped line ends, or one without end.
        r"(?s)-----BEGIN [A-Z0-9 ]+-----.*?(-----END [A-Z0-9 ]+-----|$)",
        // The same in base64, as in a kubeconfig.
        r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=_-]+",
        // Tokens of ServiceAccounts and of OIDC.
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+",
        // Join tokens.
        r"\bvft1\.[0-9a-fA-F]+\.[0-9a-fA-F]+",
        r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}",
        // Users and passwords of URLs.
        r"//[^/\s:@]+:[^/\s@]+@",
    ]
    .into_iter()
    .filter_map(|pattern| Regex::new(pattern).ok())
    .collect()
});

/// `password=…`, `token: …` in a sentence.
static ASSIGNED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)\b(password|passwd|secret|token|api[-_]?key)(["']?\s*[=:]\s*["']?)([^\s"',;&]{4,})"#)
        .ok()
});

/// A text without secrets.
pub(super) fn clean(text: &str) -> String {
    let mut text = text.to_owned();
    for pattern in PATTERNS.iter() {
        text = pattern.replace_all(&text, REMOVED).into_owned();
    }
    let Some(assigned) = ASSIGNED.as_ref() else {
        return text;
    };
    let keep = |found: &Captures<'_>| format!("{}{}{REMOVED}", &found[1], &found[2]);
    assigned.replace_all(&text, keep).into_owned()
}

/// A JSON value without secrets.
pub(super) fn clean_json(value: &mut Value) {
    match value {
        Value::String(text) => *text = clean(text),
        Value::Array(items) => items.iter_mut().for_each(clean_json),
        Value::Object(fields) => {
            for (name, value) in fields {
                if is_secret(name) {
                    *value = REMOVED.into();
                } else if name == "headers" {
                    clean_headers(value);
                } else {
                    clean_json(value);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Headers of requests in settings: their values may be secrets of any form.
fn clean_headers(headers: &mut Value) {
    clean_json(headers);
    for header in headers.as_array_mut().into_iter().flatten() {
        if let Some(value) = header.get_mut("value") {
            *value = REMOVED.into();
        }
    }
}

/// Settings in YAML without secrets, and without comments, which may quote anything. Text that is
/// not YAML is left out.
pub(super) fn clean_yaml(text: &str) -> Value {
    let Ok(documents) = parse_yaml(text) else {
        return "[removed: not YAML]".into();
    };
    let mut documents = Value::Array(documents.iter().map(Node::to_json).collect());
    clean_json(&mut documents);
    documents
}

/// Whether a field of this name holds a secret.
fn is_secret(field: &str) -> bool {
    let field = field.to_lowercase();
    let is_token = field.ends_with("token") && field != "continuetoken";
    is_token || SECRET_FIELDS.iter().any(|part| field.contains(part))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_removed_and_the_rest_stays() {
        assert_eq!(PATTERNS.len(), 6);
        for (text, expected) in [
            ("the agent of a/b is silent", "the agent of a/b is silent"),
            (
                "key -----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY----- here",
                "key [removed] here",
            ),
            ("cut -----BEGIN PRIVATE KEY-----\\nMHcC", "cut [removed]"),
            (
                "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl!",
                "got [removed]!",
            ),
            (
                "client-key-data: LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCg==, user",
                "client-key-data: [removed], user",
            ),
            ("vft1.3f9c1a7be204.00aa11bb", "[removed]"),
            ("Authorization: Bearer abcdefgh.ijkl", "Authorization: [removed]"),
            ("https://me:pw@host/x", "https:[removed]host/x"),
            ("password=hunter22, user=x", "password=[removed], user=x"),
            ("token: \"abcd1234\"", "token: \"[removed]\""),
        ] {
            assert_eq!(clean(text), expected);
        }
        let mut value = json!({
            "continue": "a/b", "message": "password=hunter22",
            "nested": [{ "joinToken": "x", "clientSecret": { "a": 1 }, "name": "token-book" }],
        });
        clean_json(&mut value);
        assert_eq!(
            value,
            json!({
                "continue": "a/b", "message": "password=[removed]",
                "nested": [{ "joinToken": "[removed]", "clientSecret": "[removed]", "name": "token-book" }],
            })
        );
    }
}
