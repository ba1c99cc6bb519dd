//! Failing and slow disks in a running guest.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    part,
    running::{Guest, State},
};

/// Operations that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Cache flushes, at the end of `fsync`.
    Flush,
}

impl Io {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

impl Guest {
    /// Makes all these operations of a disk fail with EIO from now on. Replaces earlier faults.
    pub fn fail(&self, name: &str, what: &[Io]) -> Result<()> {
        self.inject(name, what, None)
    }

    /// Makes these operations of a disk fail with EIO when they touch this sector of 512 bytes (a
    /// bad sector). Replaces earlier faults.
    pub fn fail_at(&self, name: &str, what: &[Io], sector: u64) -> Result<()> {
        self.inject(name, what, Some(sector))
    }

    fn inject(&self, name: &str, what: &[Io], sector: Option<u64>) -> Result<()> {
        let number = self.next_number();
        let filter = format!("fault-{name}-{number}");
        let rule = |io: &Io| {
            let mut rule = json!({"event": "none", "iotype": io.name(), "errno": 5, "once": false, "immediately": false});
            if let Some(sector) = sector {
                rule["sector"] = json!(sector);
            }
            rule
        };
        let rules: Vec<Value> = what.iter().map(rule).collect();
        let mut state = self.state();
        let node = json!({"driver": "blkdebug", "node-name": filter, "image": part::node_id(name),
                          "inject-error": rules});
        state.qmp()?.call("blockdev-add", node)?;
        drive(&mut state, name, &filter)
    }

    /// Removes a disk's faults.
    pub fn heal(&self, name: &str) -> Result<()> {
        drive(&mut self.state(), name, &part::node_id(name))
    }

    /// Limits a disk to so many reads and writes per second; 0 removes the limit.
    pub fn slow(&self, name: &str, reads: u32, writes: u32) -> Result<()> {
        self.throttle(name, json!({"bps": 0, "iops_rd": reads, "iops_wr": writes}))
    }

    /// Makes a disk stop answering for hours, until `slow(name, 0, 0)`. The first operation may
    /// still be answered.
    pub fn hang(&self, name: &str) -> Result<()> {
        self.throttle(name, json!({"bps": 1, "iops_rd": 0, "iops_wr": 0}))
    }

    fn throttle(&self, name: &str, mut limit: Value) -> Result<()> {
        let mut state = self.state();
        let id = part::disk_id(name);
        let part = state.parts.iter().find(|part| part.id == id);
        let part = part.with_context(|| format!("{} has no disk {name}", self.vm().name))?;
        // The device with the disk is a child of the PCI device.
        limit["id"] = match part.port {
            Some(_) => json!(format!("/machine/peripheral/{id}/virtio-backend")),
            None => json!(id),
        };
        for key in ["bps_rd", "bps_wr", "iops"] {
            limit[key] = json!(0);
        }
        let slowed = state.qmp()?.call("block_set_io_throttle", limit);
        slowed.map(drop).with_context(|| format!("slow {name} down"))
    }
}

/// Puts a disk's device on another block node while it runs, and removes unused filters.
fn drive(state: &mut State, name: &str, node: &str) -> Result<()> {
    let prefix = format!("fault-{name}-");
    let qmp = state.qmp()?;
    let path = format!("/machine/peripheral/{}", part::disk_id(name));
    let there = qmp.call("qom-get", json!({"path": path, "property": "drive"}))?;
    if there != node {
        qmp.call(
            "qom-set",
            json!({"path": path, "property": "drive", "value": node}),
        )
        .with_context(|| format!("put {name} on {node}"))?;
    }
    let nodes = qmp.call("query-named-block-nodes", json!({"flat": true}))?;
    for old in nodes.as_array().into_iter().flatten() {
        let old = old["node-name"].as_str().unwrap_or_default();
        if old.starts_with(&prefix) && old != node {
            qmp.call("blockdev-del", json!({"node-name": old}))?;
        }
    }
    Ok(())
}
