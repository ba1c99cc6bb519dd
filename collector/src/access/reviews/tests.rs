//! Reviews with an API server that is a function.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use virtfleet_collector_core::access::{AuthMethod, Caller};

use super::*;
use crate::access::{AccessError, AccessMetrics};

/// What the API server was asked: the `spec` of each review.
type Asked = Arc<Mutex<Vec<Value>>>;

/// A client whose API server answers each review with `status`, or with an HTTP status.
pub(in crate::access) fn server(
    answer: impl Fn(&Value) -> Result<Value, u16> + Send + Sync + 'static,
) -> (Client, Asked) {
    let asked = Asked::default();
    let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
        async move {
            let bytes = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&bytes).unwrap();
            log.lock().unwrap().push(review["spec"].clone());
            let response = match answer(&review["spec"]) {
                Ok(status) => {
                    let mut review = review;
                    review["status"] = status;
                    Response::new(Body::from(review.to_string().into_bytes()))
                }
                Err(code) => {
                    let status =
                        json!({ "kind": "Status", "status": "Failure", "code": code, "message": "secret" });
                    let response = Response::builder().status(code);
                    response
                        .body(Body::from(status.to_string().into_bytes()))
                        .unwrap()
                }
            };
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    (Client::new(service, "default"), asked)
}

fn reviews(client: Client, settings: TokenReviewSettings) -> Reviews {
    Reviews::new(client, settings, AccessMetrics::default())
}

fn count(asked: &Asked) -> usize {
    asked.lock().unwrap().len()
}

/// A token with these claims.
fn jwt(claims: &Value) -> String {
    format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn alice() -> Value {
    json!({ "username": "alice", "groups": ["readers"], "uid": "u1", "extra": { "k": ["v"] } })
}

#[tokio::test]
async fn a_token_is_bound_to_an_audience() {
    // As an API server: it accepts tokens for the audience `ours`, and for itself.
    let (client, asked) = server(|spec| {
        let requested = spec["audiences"].as_array().cloned().unwrap_or_default();
        let token = spec["token"].as_str().unwrap();
        let accepted = match token {
            "ours" => requested.contains(&json!("virtfleet-collector")),
            "cluster" => requested.is_empty(),
            _ => false,
        };
        Ok(json!({ "authenticated": accepted, "user": alice(), "audiences": requested }))
    });
    let now = Instant::now();
    let both = reviews(client.clone(), TokenReviewSettings::default());
    let caller = both.caller("ours", || Ok(()), now, 0).await.unwrap();
    assert_eq!(
        (caller.name.as_str(), caller.method),
        ("alice", AuthMethod::TokenReview)
    );
    assert_eq!(
        (caller.groups, caller.uid.as_deref()),
        (vec!["readers".to_owned()], Some("u1"))
    );
    both.caller("cluster", || Ok(()), now, 0).await.unwrap();
    let only = TokenReviewSettings {
        cluster_tokens: false,
        ..TokenReviewSettings::default()
    };
    let only = reviews(client, only);
    only.caller("ours", || Ok(()), now, 0).await.unwrap();
    let error = only.caller("cluster", || Ok(()), now, 0).await.unwrap_err();
    assert!(matches!(error, AccessError::Unauthenticated { .. }), "{error}");
    assert!(
        error.remedy().contains("--audience virtfleet-collector"),
        "{}",
        error.remedy()
    );
    assert!(!error.to_string().contains("cluster\""));
    assert!(count(&asked) >= 4);
}

#[tokio::test]
async fn an_api_server_that_ignores_audiences_is_not_believed() {
    for audiences in [json!(null), json!([]), json!(["https://kubernetes.default.svc"])] {
        let (client, _) =
            server(move |_| Ok(json!({ "authenticated": true, "user": alice(), "audiences": audiences })));
        let settings = TokenReviewSettings {
            cluster_tokens: false,
            ..TokenReviewSettings::default()
        };
        let error = reviews(client, settings)
            .caller("x", || Ok(()), Instant::now(), 0)
            .await
            .unwrap_err();
        assert!(matches!(error, AccessError::Unauthenticated { .. }), "{error}");
    }
    let (client, _) =
        server(|_| Ok(json!({ "authenticated": true, "user": { "username": "" }, "audiences": [] })));
    let error = reviews(client, TokenReviewSettings::default())
        .caller("x", || Ok(()), Instant::now(), 0)
        .await;
    assert!(
        matches!(error, Err(AccessError::Unauthenticated { .. })),
        "a user without name"
    );
}

#[tokio::test]
async fn callers_are_remembered_for_a_while_and_not_beyond_their_token() {
    let (client, asked) = server(|spec| {
        let audiences = spec["audiences"].clone();
        let valid = spec["token"] != "wrong";
        Ok(json!({ "authenticated": valid, "user": alice(), "audiences": audiences }))
    });
    let reviews = reviews(client, TokenReviewSettings::default());
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    for seconds in [0, 29] {
        reviews.caller("right", || Ok(()), at(seconds), 0).await.unwrap();
    }
    assert_eq!(count(&asked), 1);
    reviews.caller("right", || Ok(()), at(30), 0).await.unwrap();
    assert_eq!(count(&asked), 2);
    // A rejected token is reviewed twice, once for each audience, and remembered for a shorter
    // time.
    for seconds in [0, 9] {
        reviews
            .caller("wrong", || Ok(()), at(seconds), 0)
            .await
            .unwrap_err();
    }
    assert_eq!(count(&asked), 4);
    reviews.caller("wrong", || Ok(()), at(10), 0).await.unwrap_err();
    assert_eq!(count(&asked), 6);
    // The token expires within the time for which callers are remembered.
    let token = jwt(&json!({ "aud": ["virtfleet-collector"], "exp": 1005 }));
    for (seconds, requests) in [(0, 7), (4, 7), (5, 8)] {
        reviews
            .caller(&token, || Ok(()), at(seconds), 1000 + seconds)
            .await
            .unwrap();
        assert_eq!(count(&asked), requests, "{seconds}");
    }
    // The claims of a token decide what is asked: one of another audience is not sent for ours.
    let other = jwt(&json!({ "aud": ["https://kubernetes.default.svc"] }));
    reviews.caller(&other, || Ok(()), at(0), 0).await.unwrap();
    assert!(asked.lock().unwrap().last().unwrap()["audiences"].is_null());
}

#[tokio::test]
async fn failures_deny_and_are_not_remembered() {
    for code in [401, 403, 404, 500] {
        let (client, asked) = server(move |_| Err(code));
        let reviews = reviews(client, TokenReviewSettings::default());
        let caller = Caller::new("alice", AuthMethod::TokenReview);
        for _ in 0..2 {
            let error = reviews
                .caller("x", || Ok(()), Instant::now(), 0)
                .await
                .unwrap_err();
            assert!(
                matches!(error, AccessError::Unavailable { .. }),
                "{code}: {error}"
            );
            assert!(!error.to_string().contains("secret") && error.to_string().contains(&code.to_string()));
            let right = AccessRight::ReadAll;
            let error = reviews.allows(&caller, right, Instant::now()).await.unwrap_err();
            assert!(
                matches!(error, AccessError::Unavailable { .. }),
                "{code}: {error}"
            );
        }
        assert_eq!(count(&asked), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_denies() {
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
    });
    let reviews = reviews(Client::new(service, "default"), TokenReviewSettings::default());
    let error = reviews
        .caller("x", || Ok(()), Instant::now(), 0)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no answer within 5 s"), "{error}");
}

#[tokio::test]
async fn rights_are_reviewed_with_all_that_is_known_of_the_caller() {
    let (client, asked) = server(|spec| {
        let namespace = spec["resourceAttributes"]["namespace"].as_str();
        Ok(match namespace {
            Some("a" | "c") => json!({ "allowed": true }),
            Some("d") => json!({ "allowed": true, "denied": true }),
            _ => json!({ "allowed": false }),
        })
    });
    let reviews = reviews(client, TokenReviewSettings::default());
    let caller = Caller {
        name: "alice".to_owned(),
        groups: vec!["readers".to_owned()],
        uid: Some("u1".to_owned()),
        extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
        method: AuthMethod::TokenReview,
    };
    let now = Instant::now();
    let namespaces = || ["a", "b", "c", "d"].map(|name| name.parse().unwrap()).to_vec();
    let mut found = reviews.readable(&caller, namespaces(), now).await.unwrap();
    found.sort();
    assert_eq!(found, ["a", "c"].map(|name| name.parse().unwrap()));
    let spec = asked.lock().unwrap()[0].clone();
    assert_eq!(
        (&spec["user"], &spec["groups"], &spec["uid"], &spec["extra"]),
        (
            &json!("alice"),
            &json!(["readers"]),
            &json!("u1"),
            &json!({ "k": ["v"] })
        )
    );
    reviews
        .readable(&caller, namespaces(), now + Duration::from_secs(29))
        .await
        .unwrap();
    assert_eq!(count(&asked), 4, "remembered");
    // Another group is another caller.
    let other = Caller {
        groups: Vec::new(),
        ..caller.clone()
    };
    reviews.readable(&other, namespaces(), now).await.unwrap();
    assert_eq!(count(&asked), 8);
    reviews
        .readable(&caller, namespaces(), now + Duration::from_secs(30))
        .await
        .unwrap();
    assert_eq!(count(&asked), 12, "and forgotten");
    for (right, expected) in [
        (AccessRight::ReadAll, ("list", "vms")),
        (AccessRight::Write(WriteResource::Vms), ("update", "vms")),
        (
            AccessRight::Write(WriteResource::CertificateAuthorities),
            ("update", "certificateauthorities"),
        ),
        (
            AccessRight::Write(WriteResource::JoinTokens),
            ("update", "jointokens"),
        ),
    ] {
        assert!(!reviews.allows(&caller, right, now).await.unwrap());
        let spec = asked.lock().unwrap().last().unwrap()["resourceAttributes"].clone();
        assert_eq!(
            (spec["verb"].as_str().unwrap(), spec["resource"].as_str().unwrap()),
            expected
        );
        assert_eq!(
            (&spec["group"], &spec["namespace"]),
            (&json!("virtfleet.io"), &Value::Null)
        );
    }
}
