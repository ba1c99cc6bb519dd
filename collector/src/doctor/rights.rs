//! Checks the rights of the collector's account on the infra cluster by SelfSubjectAccessReview (in
//! the pod) or SubjectAccessReview (by an admin): each right of
//! `packaging/collector/kubernetes/infra/rbac.yaml`, with the consequence if it is missing. Rights
//! that only one feature needs are in `features`.

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::{Api, Client, api::PostParams};

use super::{CheckResult, CheckStatus, authority};
use crate::config::{CollectorConfig, EnrolmentSettings};

/// Maximum concurrent requests.
const MAX_CONCURRENT_REVIEWS: usize = 8;

/// A right, and the consequence if it is missing.
#[derive(Debug, Clone)]
pub(super) struct Right {
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    /// With its subresource, e.g. `guesthealths/status`.
    pub(super) resource: &'static str,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    /// What the collector cannot do without it.
    pub(super) without: &'static str,
    pub(super) status: CheckStatus,
}

impl Right {
    /// As `kubectl auth can-i` expects it, e.g. `patch guesthealths.virtfleet.io/status`.
    pub(super) fn text(&self) -> String {
        let text = match (self.group, self.resource.split_once('/')) {
            ("", _) => format!("{} {}", self.verb, self.resource),
            (group, Some((plain, sub))) => format!("{} {plain}.{group}/{sub}", self.verb),
            (group, None) => format!("{} {}.{group}", self.verb, self.resource),
        };
        match (&self.namespace, &self.name) {
            // Without a namespace, only the name distinguishes two rights on one resource.
            (None, Some(name)) => format!("{text}/{name}"),
            _ => text,
        }
    }

    /// Where, as an option of `kubectl`.
    pub(super) fn place(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("-n {namespace}"),
            None => "--all-namespaces".to_owned(),
        }
    }

    /// Whether the client's own account has it, or the ServiceAccount `account` (its namespace and
    /// name).
    pub(super) async fn is_granted(
        &self,
        client: &Client,
        account: Option<(&str, &str)>,
    ) -> Result<bool, kube::Error> {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource, None),
        };
        let attributes = ResourceAttributes {
            group: Some(self.group.to_owned()),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            resource: Some(resource.to_owned()),
            subresource,
            verb: Some(self.verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let status = send(client, attributes, account).await?;
        Ok(status.is_some_and(|status| status.allowed))
    }
}

/// Verbs, group, resource, whether to check each of `inventory.cluster.namespaces`, severity, and
/// the consequence if it is missing.
type RightRow = (
    &'static [&'static str],
    &'static str,
    &'static str,
    bool,
    CheckStatus,
    &'static str,
);

const ROWS: [RightRow; 14] = [
    (
        &["list", "watch"],
        "",
        "nodes",
        false,
        CheckStatus::Fail,
        "no placement is known",
    ),
    (
        &["list", "watch"],
        "kubevirt.io",
        "virtualmachineinstances",
        true,
        CheckStatus::Fail,
        "no VM is known",
    ),
    (
        &["list", "watch"],
        "kubevirt.io",
        "virtualmachines",
        true,
        CheckStatus::Fail,
        "no VM is known",
    ),
    (
        &["list", "watch"],
        "kubevirt.io",
        "virtualmachineinstancemigrations",
        true,
        CheckStatus::Warn,
        "fewer labels of other writers are replaced",
    ),
    (
        &["list", "watch"],
        "",
        "pods",
        true,
        CheckStatus::Fail,
        "no agent has an address",
    ),
    (
        &["list", "watch"],
        "virtfleet.io",
        "userclusters",
        false,
        CheckStatus::Fail,
        "no VM has a cluster",
    ),
    (
        &["list", "watch"],
        "virtfleet.io",
        "labelpropagations",
        false,
        CheckStatus::Fail,
        "no label is planned",
    ),
    (
        &["list"],
        "virtfleet.io",
        "clustersources",
        false,
        CheckStatus::Warn,
        "ClusterSources are not followed",
    ),
    (
        &["patch"],
        "virtfleet.io",
        "userclusters/status",
        false,
        CheckStatus::Warn,
        "UserClusters have no status",
    ),
    (
        &["patch"],
        "virtfleet.io",
        "labelpropagations/status",
        false,
        CheckStatus::Warn,
        "LabelPropagations have no status",
    ),
    (
        &["list", "create", "patch", "delete"],
        "virtfleet.io",
        "guesthealths",
        true,
        CheckStatus::Warn,
        "no GuestHealth is written",
    ),
    (
        &["patch"],
        "virtfleet.io",
        "guesthealths/status",
        true,
        CheckStatus::Warn,
        "GuestHealths have no status",
    ),
    (
        &["create", "patch"],
        "events.k8s.io",
        "events",
        true,
        CheckStatus::Warn,
        "no Event is recorded",
    ),
    (
        &["list"],
        "networking.k8s.io",
        "servicecidrs",
        false,
        CheckStatus::Warn,
        "the service range is the default of scrape.serviceCIDRs",
    ),
];

/// Rights that `server.access.tokenReview` needs.
const REVIEW_ROWS: [RightRow; 2] = [
    (
        &["create"],
        "authentication.k8s.io",
        "tokenreviews",
        false,
        CheckStatus::Fail,
        "no token is accepted",
    ),
    (
        &["create"],
        "authorization.k8s.io",
        "subjectaccessreviews",
        false,
        CheckStatus::Fail,
        "no token is accepted",
    ),
];

const TOKEN_SECRET: &str = "virtfleet-join-tokens";
/// Packaged namespace of the kubeconfigs of user clusters.
pub(super) const KUBECONFIG_NAMESPACE: &str = "virtfleet-kubeconfigs";
/// Packaged namespace of the Secrets that `spec.mla` of UserClusters names.
const MLA_NAMESPACE: &str = "virtfleet-mla";

fn rights(config: &CollectorConfig, own_namespace: &str, lease: Option<(&str, &str)>) -> Vec<Right> {
    let watched = config
        .inventory
        .cluster
        .iter()
        .flat_map(|cluster| cluster.namespaces.clone());
    let watched: Vec<Option<String>> = watched.map(Some).collect();
    let all = vec![None];
    let mut rights = Vec::new();
    let reviews = config.server.access.token_review.is_some();
    let rows = ROWS
        .into_iter()
        .chain(REVIEW_ROWS.into_iter().filter(|_| reviews));
    for (verbs, group, resource, each, status, without) in rows {
        let namespaces = if each && !watched.is_empty() {
            &watched
        } else {
            &all
        };
        for namespace in namespaces {
            rights.extend(verbs.iter().map(|verb| Right {
                verb,
                group,
                resource,
                namespace: namespace.clone(),
                name: None,
                without,
                status,
            }));
        }
    }
    // A Namespace is in no namespace: the rights are limited by its name.
    let names = if watched.is_empty() { &all } else { &watched };
    for name in names {
        rights.extend(["list", "watch"].map(|verb| Right {
            verb,
            group: "",
            resource: "namespaces",
            namespace: None,
            name: name.clone(),
            without: "the annotation virtfleet.io/ignore on a Namespace has no effect",
            status: CheckStatus::Warn,
        }));
    }
    let mut one = |verb, group, resource, namespace: &str, name: Option<&str>, status, without| {
        rights.push(Right {
            verb,
            group,
            resource,
            namespace: Some(namespace.to_owned()),
            name: name.map(str::to_owned),
            without,
            status,
        });
    };
    let kubeconfigs = "user clusters whose kubeconfig is there cannot be reached";
    let mla = "metrics of user clusters whose credentials are there are not sent";
    let namespaces = [(KUBECONFIG_NAMESPACE, kubeconfigs)].into_iter();
    let namespaces = namespaces.chain(config.mla.iter().map(|_| (MLA_NAMESPACE, mla)));
    for (namespace, without) in namespaces {
        for verb in ["list", "watch"] {
            let (resource, status) = ("secrets", CheckStatus::Warn);
            one(verb, "", resource, namespace, None, status, without);
        }
    }
    if let Some(enrolment) = &config.enrolment {
        for (verb, resource, name, status, without) in enrolment_rights(enrolment, config.ingest.is_some()) {
            one(verb, "", resource, own_namespace, name, status, without);
        }
    }
    let without = "the addresses of the infra API server are known only from its URL";
    one(
        "get",
        "discovery.k8s.io",
        "endpointslices",
        "default",
        Some("kubernetes"),
        CheckStatus::Warn,
        without,
    );
    let (group, namespace, warn) = ("coordination.k8s.io", "kube-node-lease", CheckStatus::Warn);
    let without = "a dead kubelet of an infra node that the controller manager does not notice is noticed after 10 minutes";
    one("list", group, "leases", namespace, None, warn, without);
    if let Some((namespace, lease)) = lease {
        let service = config.leader_election.service.as_deref();
        rights.extend(leader_rights(namespace, lease, service));
    }
    rights
}

/// Rights on the Lease, and on the EndpointSlice with the leader's address.
fn leader_rights(namespace: &str, lease: &str, service: Option<&str>) -> Vec<Right> {
    let right = |verb, group, resource, name: Option<&str>, without| Right {
        verb,
        group,
        resource,
        namespace: Some(namespace.to_owned()),
        name: name.map(str::to_owned),
        without,
        status: CheckStatus::Fail,
    };
    let without = "this collector never leads, and writes nothing";
    let of_lease = |verb, name| right(verb, "coordination.k8s.io", "leases", name, without);
    let mut rights = vec![
        of_lease("create", None),
        of_lease("get", Some(lease)),
        of_lease("update", Some(lease)),
    ];
    if service.is_some() {
        let without = "the Service of the leader leads nowhere: Prometheus and agents cannot use it";
        let of_slice = |verb, name| right(verb, "discovery.k8s.io", "endpointslices", name, without);
        rights.extend([of_slice("create", None), of_slice("patch", service)]);
    }
    rights
}

/// Verb, resource, name, severity, and the consequence if it is missing.
type EnrolmentRight<'a> = (
    &'static str,
    &'static str,
    Option<&'a str>,
    CheckStatus,
    &'static str,
);

/// Rights on the Secrets of the authority and of join tokens, and on the records of enrolment.
fn enrolment_rights(enrolment: &EnrolmentSettings, has_tokens: bool) -> Vec<EnrolmentRight<'_>> {
    let (secrets, fail, warn) = ("secrets", CheckStatus::Fail, CheckStatus::Warn);
    let create = "the Secret of the authority cannot be created; create it empty by hand";
    let update = "no root can be rotated and no certificate denied";
    let mut rights = vec![
        ("create", secrets, None, warn, create),
        ("update", secrets, Some(enrolment.secret.as_str()), fail, update),
    ];
    for name in authority::names(enrolment) {
        let follow = "changes of the authority are followed only once a minute";
        rights.extend([
            ("get", secrets, Some(name), fail, "no certificate can be issued"),
            ("list", secrets, Some(name), warn, follow),
            ("watch", secrets, Some(name), warn, follow),
        ]);
    }
    let without = "no agent is enrolled, because its key cannot be recorded";
    let records = Some("virtfleet-enrolments-00");
    for (verb, name) in [("create", None), ("get", records), ("update", records)] {
        rights.push((verb, "configmaps", name, fail, without));
    }
    if has_tokens {
        let without = "no agent enrols with a join token";
        rights.extend(["get", "update"].map(|verb| (verb, secrets, Some(TOKEN_SECRET), warn, without)));
    }
    rights
}

/// A result for each missing right, or one result if there is none. `own_namespace` has the Secret
/// of the authority; `lease` is namespace and name of the Lease, if the election is enabled. The
/// rights are those of the client's own account, or of `account`, a ServiceAccount of
/// `own_namespace`.
pub(super) async fn check(
    config: &CollectorConfig,
    client: &Client,
    own_namespace: &str,
    lease: Option<(&str, &str)>,
    account: Option<&str>,
) -> Vec<CheckResult> {
    let rights = rights(config, own_namespace, lease);
    let count = rights.len();
    let account = account.map(|name| (own_namespace, name));
    let requested = stream::iter(rights)
        .map(|right| review(client, right, account))
        .buffered(MAX_CONCURRENT_REVIEWS);
    let missing: Vec<CheckResult> = requested.filter_map(std::future::ready).collect().await;
    if missing.is_empty() {
        return vec![CheckResult::ok("rights", format!("all {count} are granted"))];
    }
    missing
}

/// Sends the review, about a ServiceAccount (its namespace and name) or the client's own account.
async fn send(
    client: &Client,
    attributes: ResourceAttributes,
    account: Option<(&str, &str)>,
) -> Result<Option<SubjectAccessReviewStatus>, kube::Error> {
    let parameters = PostParams::default();
    let Some((namespace, name)) = account else {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        return Ok(api.create(&parameters, &review).await?.status);
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            user: Some(format!("system:serviceaccount:{namespace}:{name}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    Ok(api.create(&parameters, &review).await?.status)
}

/// The result for a right that is not granted.
async fn review(client: &Client, right: Right, account: Option<(&str, &str)>) -> Option<CheckResult> {
    let (what, place) = (right.text(), right.place());
    let of_account =
        account.map(|(namespace, name)| format!(" --as system:serviceaccount:{namespace}:{name}"));
    let of_account = of_account.unwrap_or_default();
    let next = format!(
        "kubectl auth can-i {what} {place}{of_account}; grant it as in packaging/collector/kubernetes"
    );
    match right.is_granted(client, account).await {
        Ok(true) => None,
        Ok(false) => Some(CheckResult::new(
            right.status,
            format!("right {what}"),
            format!("not granted ({place}): {}", right.without),
            next,
        )),
        Err(error) => Some(CheckResult::warn(
            format!("right {what}"),
            format!("cannot be checked: {error}"),
            next,
        )),
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::layered::Fragment;

    use super::*;

    #[test]
    fn rights_on_namespaces_are_limited_to_those_that_are_watched() {
        let of = |cluster: &str| {
            let text = format!(
                "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {{cluster: {{{cluster}}}}}\n"
            );
            let file = "c.yaml".to_owned();
            let config = CollectorConfig::load(&[Fragment { file, text }]).value;
            let found = rights(&config, "fleet", None).into_iter();
            let found = found.filter(|right| right.resource == "namespaces" && right.verb == "list");
            found.map(|right| right.text()).collect::<Vec<_>>()
        };
        assert_eq!(of(""), ["list namespaces"]);
        assert_eq!(
            of("namespaces: [a, b]"),
            ["list namespaces/a", "list namespaces/b"]
        );
    }
}
