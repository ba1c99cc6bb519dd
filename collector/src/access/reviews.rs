//! Reviews by the infra cluster's API server: who a token belongs to (TokenReview), and what that
//! caller may do (SubjectAccessReview). Results are remembered for a while; failures are not, and
//! deny.

mod rights;
#[cfg(test)]
pub(super) mod tests;
mod token;

pub use rights::WriteResource;
pub(super) use rights::{AccessRight, can_i};

use std::{future::Future, num::NonZeroUsize, time::Duration};

use kube::Client;
use ring::digest::SHA256_OUTPUT_LEN;
use tokio::sync::Semaphore;
use virtfleet_collector_core::access::Caller;

use self::rights::RightKey;
use super::{AccessError, metrics::AccessMetrics, ttl_cache::TtlCache};
use crate::config::TokenReviewSettings;

/// Maximum time of one review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum concurrent reviews, over all callers.
const MAX_CONCURRENT_REVIEWS: usize = 16;
/// Maximum time for which a rejected token is remembered.
const REJECTED_TTL: Duration = Duration::from_secs(10);
/// Maximum remembered tokens, of the verified and of the rejected ones.
const MAX_TOKENS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Maximum remembered rights.
const MAX_RIGHTS: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// A SHA-256 digest.
type Sha256Digest = [u8; SHA256_OUTPUT_LEN];

/// A client of the API server's reviews, with its memory.
pub struct Reviews {
    client: Client,
    settings: TokenReviewSettings,
    /// Verified tokens, by their SHA-256.
    callers: TtlCache<Sha256Digest, Caller>,
    /// Rejected tokens. Apart from the others, so that a flood of them evicts no verified one.
    rejected: TtlCache<Sha256Digest, ()>,
    rights: TtlCache<RightKey, bool>,
    permits: Semaphore,
    metrics: AccessMetrics,
}

impl Reviews {
    /// Reviews by the API server of `client`.
    pub fn new(client: Client, settings: TokenReviewSettings, metrics: AccessMetrics) -> Self {
        Self {
            client,
            settings,
            callers: TtlCache::new(MAX_TOKENS),
            rejected: TtlCache::new(MAX_TOKENS),
            rights: TtlCache::new(MAX_RIGHTS),
            permits: Semaphore::new(MAX_CONCURRENT_REVIEWS),
            metrics,
        }
    }

    /// Sends a review when fewer than the maximum are running.
    async fn review<T>(
        &self,
        kind: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, AccessError> {
        let limited = async {
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await;
            request.await
        };
        let reason = match tokio::time::timeout(REVIEW_TIMEOUT, limited).await {
            Ok(Ok(answer)) => {
                self.metrics.reviewed(kind, "ok");
                return Ok(answer);
            }
            // The text of other errors may have a part of the answer.
            Ok(Err(kube::Error::Api(status))) => format!("status {}", status.code),
            Ok(Err(_)) => "no usable answer".to_owned(),
            Err(_) => format!("no answer within {} s", REVIEW_TIMEOUT.as_secs()),
        };
        self.metrics.reviewed(kind, "error");
        Err(AccessError::unavailable(format!(
            "the infra cluster's API server does not answer a {kind}: {reason}"
        )))
    }
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviews")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
