//! The one table of routes. The router, the OpenAPI document, the index and the answer to an unknown path are made from it,
//! so that none of them can say anything else.

use schemars::{Schema, SchemaGenerator};
use virtfleet_collector_core::view::{ClusterView, HostView, List, VmDetail, VmView};
use virtfleet_wire::exposition;

use super::{
    clusters,
    error::ApiError,
    findings::{self, FindingView},
    fleet_page, health, hosts,
    label_inputs::{self, LabelInputs},
    labels::{self, LabelView},
    openapi, own_page,
    param::{FINDING_FILTERS, HOST_FILTERS, LABEL_FILTERS, LABEL_OWNERS, PAGING, Param, VM_FILTERS, WAIT},
    reply::Reply,
    router::Ask,
    sd::{self, TargetGroup},
    vm, vms,
};

/// One path, which answers GET and HEAD.
pub(super) struct Route {
    /// The path; `{x}` is a parameter.
    pub(super) path: &'static str,
    /// Unique name of the operation.
    pub(super) id: &'static str,
    /// What it gives, in one sentence.
    pub(super) summary: &'static str,
    /// The query parameters that it takes.
    pub(super) params: &'static [&'static [Param]],
    /// Whether parameters that it does not know are an error. Scrapers and probes may add their own.
    pub(super) strict: bool,
    /// What the answer is.
    pub(super) body: Body,
    /// Statuses above 399 that it answers with, besides 400 and 500.
    pub(super) errors: &'static [u16],
    /// Answers.
    pub(super) answer: Handler,
}

/// Who answers.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// A function of the fleet's snapshot.
    Snapshot(fn(&Ask) -> Result<Reply, ApiError>),
    /// A VM's agent, through the proxy of pages.
    Agent,
}

/// The type of an answer.
pub(super) enum Body {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Text of this media type.
    Text(&'static str),
}

impl Route {
    /// Whether its answer follows from the fleet's revision alone, so that it has an `ETag` and can be waited for.
    pub(super) fn has_revision(&self) -> bool {
        self.params
            .iter()
            .copied()
            .flatten()
            .any(|param| param.name == "wait")
    }
}

const PLAIN: Body = Body::Text("text/plain; charset=utf-8");
const METRICS: Body = Body::Text(exposition::CONTENT_TYPE);

/// Every path that there is.
pub(super) const ROUTES: &[Route] = &[
    Route {
        path: "/",
        id: "index",
        summary: "This list of paths.",
        params: &[],
        strict: false,
        body: PLAIN,
        errors: &[],
        answer: Handler::Snapshot(health::index),
    },
    Route {
        path: "/api/v1/vms",
        id: "listVms",
        summary: "VMs: where each stands, which cluster it serves, how its agent is.",
        params: &[VM_FILTERS, PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<List<VmView>>),
        errors: &[],
        answer: Handler::Snapshot(vms::list),
    },
    Route {
        path: "/api/v1/vms/{namespace}/{name}",
        id: "getVm",
        summary: "One VM in full: identity checks, interfaces, findings and its guest's last report.",
        params: &[WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<VmDetail>),
        errors: &[404],
        answer: Handler::Snapshot(vm::detail),
    },
    Route {
        path: "/api/v1/hosts",
        id: "listHosts",
        summary: "Infra nodes, with the VMs on each.",
        params: &[HOST_FILTERS, PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<List<HostView>>),
        errors: &[],
        answer: Handler::Snapshot(hosts::list),
    },
    Route {
        path: "/api/v1/clusters",
        id: "listClusters",
        summary: "User clusters: how each stands, and its VMs by zone; those that only labels of VMs name, too.",
        params: &[PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<List<ClusterView>>),
        errors: &[],
        answer: Handler::Snapshot(clusters::list),
    },
    Route {
        path: "/api/v1/findings",
        id: "listFindings",
        summary: "What somebody should know, about the inventory and about VMs.",
        params: &[FINDING_FILTERS, PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<List<FindingView>>),
        errors: &[],
        answer: Handler::Snapshot(findings::list),
    },
    Route {
        path: "/api/v1/labels",
        id: "listLabels",
        summary: "Labels of user-cluster Nodes: what each is, what it should be, and why.",
        params: &[LABEL_OWNERS, LABEL_FILTERS, PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<List<LabelView>>),
        errors: &[],
        answer: Handler::Snapshot(labels::list),
    },
    Route {
        path: "/api/v1/labels/inputs",
        id: "listLabelInputs",
        summary: "All that the labels of each Node follow from, so that another policy can be tried on it; 500 a page unless limited.",
        params: &[LABEL_OWNERS, PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<LabelInputs>),
        errors: &[],
        answer: Handler::Snapshot(label_inputs::list),
    },
    Route {
        path: "/api/v1/openapi.json",
        id: "getOpenApi",
        summary: "This API as an OpenAPI 3.1 document.",
        params: &[],
        strict: true,
        body: Body::Json(openapi::any_object),
        errors: &[],
        answer: Handler::Snapshot(openapi::answer),
    },
    Route {
        path: "/sd",
        id: "getTargets",
        summary: "Every agent whose certificate was verified in the last attempts, for Prometheus' http_sd_configs.",
        params: &[],
        strict: false,
        body: Body::Json(SchemaGenerator::subschema_for::<Vec<TargetGroup>>),
        errors: &[503],
        answer: Handler::Snapshot(sd::targets),
    },
    Route {
        path: "/vm/{namespace}/{name}/metrics",
        id: "getVmMetrics",
        summary: "The metrics page of a VM's agent, fetched and bounded by the collector; for Prometheus.",
        params: &[],
        strict: false,
        body: METRICS,
        errors: &[404, 502, 503, 504],
        answer: Handler::Agent,
    },
    Route {
        path: "/metrics/fleet",
        id: "getFleetMetrics",
        summary: "Placement, state and reachability of every VM; scrape it with honor_labels.",
        params: &[],
        strict: false,
        body: METRICS,
        errors: &[],
        answer: Handler::Snapshot(fleet_page::page),
    },
    Route {
        path: "/metrics",
        id: "getMetrics",
        summary: "The collector's own metrics.",
        params: &[],
        strict: false,
        body: METRICS,
        errors: &[],
        answer: Handler::Snapshot(own_page::page),
    },
    Route {
        path: "/healthz",
        id: "getHealth",
        summary: "Answers 200 while the collector serves requests.",
        params: &[],
        strict: false,
        body: PLAIN,
        errors: &[],
        answer: Handler::Snapshot(health::alive),
    },
    Route {
        path: "/readyz",
        id: "getReadiness",
        summary: "Answers 200 once the inventory has been read completely.",
        params: &[],
        strict: false,
        body: PLAIN,
        errors: &[503],
        answer: Handler::Snapshot(health::ready),
    },
];
