//! SubjectAccessReview: what a caller may do.

use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, api::PostParams};
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use virtfleet_collector_core::access::Caller;
use virtfleet_wire::ids::Namespace;

use super::{MAX_CONCURRENT_REVIEWS, Reviews, Sha256Digest};
use crate::access::AccessError;

/// API group of the reviewed resources.
const GROUP: &str = "virtfleet.io";

/// What a request changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteResource {
    /// VMs: certificates are revoked, identities are reset.
    Vms,
    /// The certificate authorities: they are rotated.
    CertificateAuthorities,
}

/// One right.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::access) enum AccessRight {
    /// To read the whole fleet.
    ReadAll,
    /// To read the VMs of a namespace.
    Read(Namespace),
    /// To send requests that change something.
    Write(WriteResource),
}

impl AccessRight {
    /// Verb, resource and namespace; cluster-wide without namespace.
    fn attributes(&self) -> (&'static str, &'static str, Option<&Namespace>) {
        match self {
            Self::ReadAll => ("list", "vms", None),
            Self::Read(namespace) => ("get", "vms", Some(namespace)),
            Self::Write(WriteResource::Vms) => ("update", "vms", None),
            Self::Write(WriteResource::CertificateAuthorities) => ("update", "certificateauthorities", None),
        }
    }
}

/// The command that checks a right.
pub(in crate::access) fn can_i(right: &AccessRight) -> String {
    let (verb, resource, namespace) = right.attributes();
    let place = match namespace {
        Some(namespace) => format!("-n {namespace}"),
        None => "--all-namespaces".to_owned(),
    };
    format!("kubectl auth can-i {verb} {resource}.{GROUP} {place}")
}

/// A right of a caller, who is known by a digest of all that the review depends on.
pub(super) type RightKey = (Sha256Digest, AccessRight);

fn caller_digest(caller: &Caller) -> Sha256Digest {
    let mut context = Context::new(&SHA256);
    let mut add = |text: &str| {
        context.update(&text.len().to_be_bytes());
        context.update(text.as_bytes());
    };
    add(&caller.name);
    add(caller.uid.as_deref().unwrap_or_default());
    for (kind, values) in [("group", &caller.groups)]
        .into_iter()
        .chain(caller.extra.iter().map(|(key, values)| (key.as_str(), values)))
    {
        add(kind);
        add(&values.len().to_string());
        for value in values {
            add(value);
        }
    }
    let mut key = [0; SHA256_OUTPUT_LEN];
    key.copy_from_slice(context.finish().as_ref());
    key
}

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
