//! Table of routes. The router, the OpenAPI document, the index and the error for an unknown path
//! are generated from it, so they always agree.

use schemars::{Schema, SchemaGenerator};
use virtfleet_collector_core::view::{ClusterView, HostView, List, VmDetail, VmView};
use virtfleet_wire::exposition;

use super::{
    clusters, collector_metrics,
    error::ApiError,
    findings::{self, FindingView},
    fleet_page, health, hosts,
    label_inputs::{self, LabelInputs},
    labels::{self, LabelView},
    openapi,
    param::{FINDING_FILTERS, HOST_FILTERS, LABEL_FILTERS, LABEL_OWNERS, PAGING, Param, VM_FILTERS, WAIT},
    reply::Reply,
    router::ApiRequest,
    sd::{self, TargetGroup},
    vm, vms,
};

/// One path, for GET and HEAD.
pub(super) struct Route {
    /// The path; `{x}` is a parameter.
    pub(super) path: &'static str,
    /// Unique name of the operation.
    pub(super) id: &'static str,
    /// Description, one sentence.
    pub(super) summary: &'static str,
    /// Its query parameters.
    pub(super) params: &'static [&'static [Param]],
    /// Whether unknown parameters are an error. Scrapers and probes may add their own.
    pub(super) strict: bool,
    /// Type of the response.
    pub(super) body: Body,
    /// Error statuses of the route besides 400 and 500.
    pub(super) errors: &'static [u16],
    /// The handler.
    pub(super) answer: Handler,
}

/// Handler of a route.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// A function of the fleet's snapshot.
    Snapshot(fn(&ApiRequest) -> Result<Reply, ApiError>),
    /// Proxies the page of a VM's agent.
    Agent,
}

/// Type of a response.
pub(super) enum Body {
    /// JSON with this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Text with this media type.
    Text(&'static str),
}

impl Route {
    /// Whether its response depends on the fleet's revision only, so that it has an `ETag` and
    /// supports long polls.
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

/// All routes.
pub(super) const ROUTES: &[Route] = &[
    Route {
        path: "/",
        id: "index",
        summary: "List of paths.",
        params: &[],
        strict: false,
        body: PLAIN,
        errors: &[],
        answer: Handler::Snapshot(health::index),
    },
    Route {
        path: "/api/v1/vms",
        id: "listVms",
        summary: "VMs: placement, user cluster and state of the agent.",
        params: &[VM_FILTERS, PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<List<VmView>>),
        errors: &[],
        answer: Handler::Snapshot(vms::list),
    },
    Route {
        path: "/api/v1/vms/{namespace}/{name}",
        id: "getVm",
        summary: "One VM with all details: identity checks, interfaces, findings and its guest's last report.",
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
        summary: "User clusters, including those that only labels of VMs name: status, and number of VMs by zone.",
        params: &[PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<List<ClusterView>>),
        errors: &[],
        answer: Handler::Snapshot(clusters::list),
    },
    Route {
        path: "/api/v1/findings",
        id: "listFindings",
        summary: "Findings about the inventory and about VMs.",
        params: &[FINDING_FILTERS, PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<List<FindingView>>),
        errors: &[],
        answer: Handler::Snapshot(findings::list),
    },
    Route {
        path: "/api/v1/labels",
        id: "listLabels",
        summary: "Labels of user-cluster Nodes: actual and desired values, with reasons.",
        params: &[LABEL_OWNERS, LABEL_FILTERS, PAGING, WAIT],
        strict: true,
        body: Body::Json(SchemaGenerator::subschema_for::<List<LabelView>>),
        errors: &[],
        answer: Handler::Snapshot(labels::list),
    },
    Route {
        path: "/api/v1/labels/inputs",
        id: "listLabelInputs",
        summary: "Inputs of the label plan of each Node, to try another policy; 500 per page by default.",
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
        summary: "Agents whose certificates were verified in the last attempts, for Prometheus' http_sd_configs.",
        params: &[],
        strict: false,
        body: Body::Json(SchemaGenerator::subschema_for::<Vec<TargetGroup>>),
        errors: &[503],
        answer: Handler::Snapshot(sd::targets),
    },
    Route {
        path: "/vm/{namespace}/{name}/metrics",
        id: "getVmMetrics",
        summary: "The metrics page of a VM's agent, fetched and limited by the collector, for Prometheus.",
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
        answer: Handler::Snapshot(collector_metrics::page),
    },
    Route {
        path: "/healthz",
        id: "getHealth",
        summary: "Returns 200 while the collector serves requests.",
        params: &[],
        strict: false,
        body: PLAIN,
        errors: &[],
        answer: Handler::Snapshot(health::alive),
    },
    Route {
        path: "/readyz",
        id: "getReadiness",
        summary: "Returns 200 once the inventory has been read completely.",
        params: &[],
        strict: false,
        body: PLAIN,
        errors: &[503],
        answer: Handler::Snapshot(health::ready),
    },
];
