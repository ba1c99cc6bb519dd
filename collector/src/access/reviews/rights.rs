//! SubjectAccessReview: what a caller may do.

use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, api::PostParams};
use virtfleet_collector_core::access::Caller;
use virtfleet_wire::ids::Namespace;

use super::{
    MAX_CONCURRENT_REVIEWS, Reviews,
    right::{AccessRight, GROUP, caller_digest},
};
use crate::access::AccessError;

impl Reviews {
    /// Whether a caller has a right.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(in crate::access) async fn allows(
        &self,
        caller: &Caller,
        right: AccessRight,
        now: Instant,
    ) -> Result<bool, AccessError> {
        let key = (caller_digest(caller), right);
        if let Some(known) = self.rights.get(&key, now) {
            return Ok(known);
        }
        let (verb, resource, namespace) = key.1.attributes();
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(caller.name.clone()),
                groups: Some(caller.groups.clone()),
                uid: caller.uid.clone(),
                extra: Some(caller.extra.clone()),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(GROUP.to_owned()),
                    resource: Some(resource.to_owned()),
                    verb: Some(verb.to_owned()),
                    namespace: namespace.map(ToString::to_string),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let parameters = PostParams::default();
        let answer = self
            .review("SubjectAccessReview", api.create(&parameters, &review))
            .await?;
        let allowed = answer
            .status
            .is_some_and(|status| status.allowed && status.denied != Some(true));
        self.rights.put(key, allowed, now + self.settings.cache.0);
        Ok(allowed)
    }

    /// The namespaces of `candidates` whose VMs a caller may read.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(in crate::access) async fn readable(
        &self,
        caller: &Caller,
        candidates: Vec<Namespace>,
        now: Instant,
    ) -> Result<Vec<Namespace>, AccessError> {
        let reviews = stream::iter(candidates.into_iter().map(|namespace| async move {
            let right = AccessRight::Read(namespace.clone());
            let allowed = self.allows(caller, right, now).await?;
            Ok::<_, AccessError>(allowed.then_some(namespace))
        }));
        let reviews = reviews.buffer_unordered(MAX_CONCURRENT_REVIEWS);
        reviews
            .try_filter_map(|found| std::future::ready(Ok(found)))
            .try_collect()
            .await
    }
}
