//! Placement of the fleet: does each VM stand where its VMI allows, how are pools spread, what
//! happens if an infra node is drained. Pure functions of [`PlacementFleet`].
//!
//! Only VMs are known, not the other pods of the infra cluster, so every number about room is an
//! estimate.

mod check;
mod drain;
mod findings;
mod fit;
mod fleet;
mod host;
mod occupancy;
mod pools;
mod top;

pub use self::{
    check::{PlacementLevel, PlacementProblem, PlacementReport, check},
    drain::{DrainEvidence, DrainHost, DrainOutcome, DrainPlan, DrainVm, NodePod, VmVolume, drain},
    findings::placement_findings,
    fit::unmet_node_rules,
    fleet::{PlacedVm, PlacementFleet},
    host::{HostCondition, HostDetail, HostVm, host_detail},
    pools::PoolSpread,
    top::{TopHost, TopOrder, TopVm, top_hosts, top_vms},
};

#[cfg(test)]
mod tests;
