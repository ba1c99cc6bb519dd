//! TokenReview: the caller with a bearer token.

use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::{Api, api::PostParams};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use virtfleet_collector_core::access::{AuthMethod, Caller};

use super::{REJECTED_TTL, Reviews, right::Sha256Digest};
use crate::access::{AccessError, token_claims::UnverifiedClaims};

impl Reviews {
    /// The caller with a token. `seconds` since 1970 is the time of `now`. `may_review` is called
    /// before a review.
    ///
    /// # Errors
    /// The token is not valid, or may not be reviewed, or the API server does not answer.
    pub(in crate::access) async fn caller(
        &self,
        token: &str,
        may_review: impl FnOnce() -> Result<(), AccessError>,
        now: Instant,
        seconds: u64,
    ) -> Result<Caller, AccessError> {
        let key = key_of(token);
        if let Some(caller) = self.callers.get(&key, now) {
            return Ok(caller);
        }
        if self.rejected.get(&key, now).is_some() {
            return Err(self.rejection());
        }
        may_review()?;
        let claims = UnverifiedClaims::of(token);
        let ttl = self.settings.cache.0;
        let Some(caller) = self.verify(token, &claims).await? else {
            self.rejected.put(key, (), now + ttl.min(REJECTED_TTL));
            return Err(self.rejection());
        };
        let left = claims
            .expires
            .map(|at| Duration::from_secs(at.saturating_sub(seconds)));
        let ttl = left.map_or(ttl, |left| left.min(ttl));
        self.callers.put(key, caller.clone(), now + ttl);
        Ok(caller)
    }

    /// The caller; none for a token that the API server rejects for every accepted audience.
    async fn verify(&self, token: &str, claims: &UnverifiedClaims) -> Result<Option<Caller>, AccessError> {
        let ours = &self.settings.audiences;
        let is_ours = claims.audiences.iter().any(|one| ours.contains(one));
        // A token with audiences, none of which is ours, cannot pass the first review.
        if !ours.is_empty() && (is_ours || claims.audiences.is_empty()) {
            let caller = self.token_review(token, Some(ours)).await?;
            if caller.is_some() || is_ours {
                return Ok(caller);
            }
        }
        if self.settings.cluster_tokens {
            return self.token_review(token, None).await;
        }
        Ok(None)
    }

    /// One review. Without `audiences` the token must be one for the API server itself.
    async fn token_review(
        &self,
        token: &str,
        audiences: Option<&Vec<String>>,
    ) -> Result<Option<Caller>, AccessError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: audiences.cloned(),
                token: Some(token.to_owned()),
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let parameters = PostParams::default();
        let answer = self
            .review("TokenReview", api.create(&parameters, &review))
            .await?;
        let status = answer.status.unwrap_or_default();
        let accepted = status.audiences.unwrap_or_default();
        // An API server that ignores audiences returns none: its tokens are for itself only.
        let is_for_us = audiences.is_none_or(|ours| accepted.iter().any(|one| ours.contains(one)));
        if status.authenticated != Some(true) || !is_for_us {
            return Ok(None);
        }
        Ok(status.user.and_then(caller_of))
    }

    fn rejection(&self) -> AccessError {
        let audiences = &self.settings.audiences;
        let mut accepted: Vec<&str> = audiences.iter().map(String::as_str).collect();
        if self.settings.cluster_tokens {
            accepted.push("that of the API server");
        }
        let example = audiences
            .first()
            .map_or(String::new(), |audience| format!(" --audience {audience}"));
        AccessError::unauthenticated(
            "the API server does not accept the token: it has expired, was revoked, or was issued by another \
             cluster or for another audience",
            format!(
                "accepted audiences: {}; get a token: kubectl create token SERVICE-ACCOUNT{example}",
                accepted.join(", ")
            ),
        )
    }
}

fn key_of(token: &str) -> Sha256Digest {
    let mut key = [0; SHA256_OUTPUT_LEN];
    key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    key
}

/// None for a user without name: it would be the name of every such user.
fn caller_of(user: UserInfo) -> Option<Caller> {
    Some(Caller {
        name: user.username.filter(|name| !name.is_empty())?,
        groups: user.groups.unwrap_or_default(),
        uid: user.uid.filter(|uid| !uid.is_empty()),
        extra: user.extra.unwrap_or_default(),
        method: AuthMethod::TokenReview,
    })
}
