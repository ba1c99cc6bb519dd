//! A request's query, checked against the parameters that its route takes.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::Query as AxumQuery,
    http::{StatusCode, Uri},
};
use virtfleet_wire::duration::Span;

use super::{
    error::ApiError,
    param::{Param, Rule},
};

/// The checked parameters of one request: every value obeys its rule.
#[derive(Debug, Default)]
pub(super) struct Query {
    values: BTreeMap<&'static str, Vec<String>>,
}

impl Query {
    /// Reads the query of `uri`. Errors name the parameter, what it may hold and, for an unknown one, the nearest known.
    pub(super) fn parse(params: &[&'static [Param]], uri: &Uri) -> Result<Self, ApiError> {
        let pairs = AxumQuery::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|rejection| {
                let message = format!("the query cannot be read: {}", rejection.body_text());
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
            if param.takes_many() {
                for value in text.split(',') {
                    check(param, value)?;
                    values.push(value.to_owned());
                }
            } else {
                if !values.is_empty() {
                    return Err(refuse(param, "occurs twice", "give it once"));
                }
                check(param, &text)?;
                values.push(text);
            }
        }
        Ok(query)
    }

    /// Whether `value` is among those asked for; yes when the parameter was not given.
    pub(super) fn admits(&self, name: &str, value: Option<&str>) -> bool {
        self.values
            .get(name)
            .is_none_or(|wanted| value.is_some_and(|value| wanted.iter().any(|one| one == value)))
    }

    /// Whether a parameter was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The text of a parameter that is given at most once.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.first().map(String::as_str)
    }

    /// The value of a [`Rule::Number`].
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The value of a [`Rule::Span`].
    pub(super) fn span(&self, name: &str) -> Option<Duration> {
        Some(self.text(name)?.parse::<Span>().ok()?.0)
    }
}

fn check(param: &Param, value: &str) -> Result<(), ApiError> {
    if value.is_empty() {
        return Err(refuse(param, "is empty", "give it a value, or leave it out"));
    }
    match param.rule {
        Rule::Names | Rule::Text => Ok(()),
        Rule::Words(words) if words.contains(&value) => Ok(()),
        Rule::Words(words) => Err(refuse(
            param,
            &format!("is {value:?}"),
            &format!("allowed are {}{}", words.join(", "), did_you_mean(value, words)),
        )),
        Rule::Number(least, most) => match value.parse::<u64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(()),
            _ => Err(refuse(
                param,
                &format!("is {value:?}"),
                &format!("allowed is a whole number from {least} to {most}"),
            )),
        },
        Rule::Span(most) => match value.parse::<Span>() {
            Ok(span) if span.0 <= Duration::from_secs(most) => Ok(()),
            _ => Err(refuse(
                param,
                &format!("is {value:?}"),
                &format!(
                    "allowed is a length of time such as 500ms, 10s or 1m, at most {}",
                    Span::seconds(most)
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
        "this path takes no parameters".to_owned()
    } else {
        format!(
            "this path takes {}{}",
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

/// `; did you mean "x"?`, or nothing when no word is near.
fn did_you_mean(text: &str, words: &[&str]) -> String {
    nearest(text, words.iter().copied())
        .map(|word| format!("; did you mean {word:?}?"))
        .unwrap_or_default()
}

/// The word that is most like `text`, when one is like it at all.
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
    fn values_are_read() {
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
    fn what_is_wrong_is_named_with_what_is_allowed() {
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
                ["\"agent\" is empty", "leave it out"],
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
            let said = format!("{}: {}", error.message, error.remedy);
            for part in parts {
                assert!(said.contains(part), "{query}: {said}");
            }
        }
    }
}
