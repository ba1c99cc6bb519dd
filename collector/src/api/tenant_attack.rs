//! The API as a tenant attacks it: each route, with each parameter.

use std::sync::{Arc, OnceLock};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{
    access::two_tenants,
    api::{ApiState, param::ParamRule, router::router, routes::ROUTES, testing},
    fleet::Fleet,
};

/// The API of a fleet of two tenants.
pub(super) struct Attack {
    pub(super) fleet: Arc<Fleet>,
    pub(super) api: ApiState,
    /// Made once: a router costs more than most of its answers.
    routers: OnceLock<AttackRouters>,
}

struct AttackRouters {
    running: Router,
    /// Here the stream of `/api/v1/watch` ends at once; `watch_tests` has a long one.
    shut_down: Router,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct AttackAnswer {
    pub(super) status: u16,
    pub(super) headers: String,
    pub(super) body: String,
}

impl AttackAnswer {
    pub(super) fn text(&self) -> String {
        format!("{} {}\n{}", self.status, self.headers, self.body)
    }
}

impl Attack {
    pub(super) fn new(with_beta: bool, redact: bool) -> Self {
        let fleet = two_tenants::fleet(with_beta);
        let mut api = testing::state_of(fleet.clone());
        api.labels = two_tenants::label_statuses(&fleet);
        api.access = two_tenants::access(redact);
        api.mla = testing::mla_of_tenants();
        Self::of(fleet, api)
    }

    pub(super) fn of(fleet: Arc<Fleet>, api: ApiState) -> Self {
        Self {
            fleet,
            api,
            routers: OnceLock::new(),
        }
    }

    fn router(&self, path: &str) -> Router {
        let routers = self.routers.get_or_init(|| {
            let mut api = self.api.clone();
            api.shutdown = CancellationToken::new();
            api.shutdown.cancel();
            AttackRouters {
                running: router(self.api.clone()),
                shut_down: router(api),
            }
        });
        let router = if path == "/api/v1/watch" {
            &routers.shut_down
        } else {
            &routers.running
        };
        router.clone()
    }

    /// The answer to a request with the route's method.
    pub(super) async fn get(&self, token: &str, path: &str) -> AttackAnswer {
        let only = path.split('?').next().unwrap();
        let route = ROUTES.iter().find(|route| route.matches(only)).unwrap();
        let request = Request::builder()
            .method(route.method())
            .uri(path)
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"));
        let response = self
            .router(route.path)
            .oneshot(request.body(Body::from("{}")).unwrap())
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
        AttackAnswer {
            status: parts.status.as_u16(),
            headers: format!("{:?}", parts.headers),
            body: String::from_utf8(body).unwrap(),
        }
    }

    /// Paths of all routes, with each parameter set to `target`, and without parameters.
    pub(super) fn paths(target: &str, own: bool) -> Vec<String> {
        let (namespace, name) = if own {
            ("ns-alpha", "vm-alpha-1")
        } else {
            (target, target)
        };
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let mut paths = Vec::new();
        for route in ROUTES {
            let path = route
                .path
                .replace("{namespace}", &encoded(namespace))
                .replace("{name}", &encoded(name));
            paths.push(path.clone());
            for param in route.params.iter().copied().flatten() {
                match param.rule {
                    ParamRule::AnyOf | ParamRule::Text => {
                        paths.push(format!("{path}?{}={}", param.name, encoded(target)));
                        paths.push(format!("{path}?limit=1&{}={}", param.name, encoded(target)));
                    }
                    ParamRule::OneOf(words) => {
                        paths.extend(words.iter().map(|word| format!("{path}?{}={word}", param.name)));
                    }
                    ParamRule::Number(..) => paths.push(format!("{path}?{}=1", param.name)),
                    ParamRule::Span(_) => paths.push(format!("{path}?{}=1s", param.name)),
                }
            }
        }
        paths
    }
}
