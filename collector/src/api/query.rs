//! Parses a request's query and checks it against the parameters of its route.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::Query as AxumQuery,
    http::{StatusCode, Uri},
};
use virtfleet_wire::duration::Span;

use super::{
    error::ApiError,
    param::{Param, ParamRule},
};

/// The checked parameters of a request.
#[derive(Debug, Default)]
pub(super) struct Query {
    values: BTreeMap<&'static str, Vec<String>>,
}

impl Query {
    /// Parses the query of `uri`.
    ///
    /// # Errors
    /// The parameter and its allowed values; for an unknown parameter the most similar valid one.
    pub(super) fn parse(params: &[&'static [Param]], uri: &Uri) -> Result<Self, ApiError> {
        let pairs = AxumQuery::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|rejection| {
                let message = format!("the query cannot be parsed: {}", rejection.body_text());
                ApiError::invalid(message, "percent-encode it as RFC 3986 says")
            })?
            .0;
        let mut query = Self::default();
        for (name, text) in pairs {
            let known = || params.iter().copied().flatten();
            let Some(param) = known().find(|param| param.name == name) else {
                return Err(unknown(&name, known().map(|param| param.name)));
            };
            let values = query.values.entry(param.name).or_default();
            if param.allows_many() {
                for value in text.split(',') {
                    check(param, value)?;
                    values.push(value.to_owned());
                }
            } else {
                if !values.is_empty() {
                    return Err(refuse(param, "occurs twice", "pass it once"));
                }
                check(param, &text)?;
                values.push(text);
            }
        }
        Ok(query)
    }

    /// Whether `value` is selected; true if the parameter is absent.
    pub(super) fn admits(&self, name: &str, value: Option<&str>) -> bool {
        self.values
            .get(name)
            .is_none_or(|wanted| value.is_some_and(|value| wanted.iter().any(|one| one == value)))
    }

    /// Whether a parameter is present.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// All values of a parameter.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.values.get(name).into_iter().flatten().map(String::as_str)
    }

    /// The text of a parameter that may occur once.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.first().map(String::as_str)
    }

    /// The value of a [`ParamRule::Number`].
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The value of a [`ParamRule::Span`].
    pub(super) fn span(&self, name: &str) -> Option<Duration> {
        Some(self.text(name)?.parse::<Span>().ok()?.0)
    }
}

fn check(param: &Param, value: &str) -> Result<(), ApiError> {
    if value.is_empty() {
        return Err(refuse(param, "is empty", "pass a value, or omit it"));
    }
    match param.rule {
        ParamRule::AnyOf | ParamRule::Text => Ok(()),
        ParamRule::OneOf(words) if words.contains(&value) => Ok(()),
        ParamRule::OneOf(words) => Err(refuse(
            param,
            &format!("is {value:?}"),
            &format!(
                "allowed values: {}{}",
                words.join(", "),
                did_you_mean(value, words)
            ),
        )),
        ParamRule::Number(min, max) => match value.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(()),
            _ => Err(refuse(
                param,
                &format!("is {value:?}"),
                &format!("allowed: a whole number from {min} to {max}"),
            )),
        },
        ParamRule::Span(max) => match value.parse::<Span>() {
            Ok(span) if span.0 <= Duration::from_secs(max) => Ok(()),
            _ => Err(refuse(
                param,
                &format!("is {value:?}"),
                &format!(
                    "allowed: a duration such as 500ms, 10s or 1m, at most {}",
                    Span::seconds(max)
                ),
            )),
        },
    }
}

fn refuse(param: &Param, what: &str, remedy: &str) -> ApiError {
    ApiError::invalid(format!("the parameter {:?} {what}", param.name), remedy)
}

fn unknown(name: &str, known: impl Iterator<Item = &'static str>) -> ApiError {
    let known: Vec<_> = known.collect();
    let remedy = if known.is_empty() {
        "this path has no parameters".to_owned()
    } else {
        format!(
            "parameters of this path: {}{}",
            known.join(", "),
            did_you_mean(name, &known)
        )
    };
    ApiError::new(
        StatusCode::BAD_REQUEST,
        "unknown_parameter",
        format!("there is no parameter {name:?}"),
        remedy,
    )
}

/// `; did you mean "x"?`, or nothing if no valid value is similar.
fn did_you_mean(text: &str, words: &[&str]) -> String {
    nearest(text, words.iter().copied())
        .map(|word| format!("; did you mean {word:?}?"))
        .unwrap_or_default()
}

/// The most similar word, if any is similar.
pub(super) fn nearest<'word>(text: &str, words: impl Iterator<Item = &'word str>) -> Option<&'word str> {
    words
        .map(|word| (strsim::jaro_winkler(text, word), word))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::{super::param, *};

    fn parse(query: &str) -> Result<Query, ApiError> {
        let uri = format!("/x?{query}").parse().unwrap();
        Query::parse(&[param::VM_FILTERS, param::PAGING, param::WAIT], &uri)
    }

    #[test]
    fn values_are_parsed() {
        let query = parse("zone=a,b&zone=c&q=x%20y&limit=7&wait=0&timeout=500ms").unwrap();
        for (zone, admitted) in [
            (Some("a"), true),
            (Some("c"), true),
            (Some("d"), false),
            (None, false),
        ] {
            assert_eq!(query.admits("zone", zone), admitted, "{zone:?}");
        }
        assert!(query.admits("region", None));
        assert_eq!(query.text("q"), Some("x y"));
        assert_eq!((query.number("limit"), query.number("wait")), (Some(7), Some(0)));
        assert_eq!(query.span("timeout"), Some(Duration::from_millis(500)));
        assert!(parse("").unwrap().values.is_empty());
    }

    #[test]
    fn errors_name_the_parameter_and_its_allowed_values() {
        for (query, code, parts) in [
            (
                "zome=a",
                "unknown_parameter",
                ["\"zome\"", "did you mean \"zone\"?"],
            ),
            (
                "xyz=a",
                "unknown_parameter",
                ["\"xyz\"", "namespace, cluster, node"],
            ),
            (
                "state=runing",
                "invalid_parameter",
                ["\"runing\"", "did you mean \"running\"?"],
            ),
            (
                "agent=up,",
                "invalid_parameter",
                ["\"agent\" is empty", "omit it"],
            ),
            (
                "limit=0",
                "invalid_parameter",
                ["\"limit\" is \"0\"", "from 1 to 100000"],
            ),
            ("limit=-1", "invalid_parameter", ["\"limit\"", "whole number"]),
            (
                "limit=1&limit=2",
                "invalid_parameter",
                ["\"limit\" occurs twice", "once"],
            ),
            (
                "timeout=6m",
                "invalid_parameter",
                ["\"timeout\" is \"6m\"", "at most 5m"],
            ),
            ("timeout=5", "invalid_parameter", ["\"timeout\"", "500ms"]),
            (
                "wait=99999999999999999999",
                "invalid_parameter",
                ["\"wait\"", "whole number"],
            ),
        ] {
            let error = parse(query).unwrap_err();
            assert_eq!(
                (error.status, error.code),
                (StatusCode::BAD_REQUEST, code),
                "{query}"
            );
            let described = format!("{}: {}", error.message, error.remedy);
            for part in parts {
                assert!(described.contains(part), "{query}: {described}");
            }
        }
    }
}
