//! What an admin sees and changes: list, revoke, reset.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use virtfleet_collector_core::{
    enrolment::{EnrolmentRecord, EnrolmentState},
    view::EnrolmentView,
};
use virtfleet_wire::ids::{Namespace, VmKey, VmName};

use super::{Enroller, records::RecordError};
use crate::{clock::unix_seconds, leader::WriteAccess};

/// Stands for the address of an agent that has not connected.
const NO_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What an admin does with the enrolment of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnrolmentAction {
    /// No certificate of the VM is used any more, and it gets none until a reset.
    Revoke,
    /// The recorded key is no longer bound: the next one that fits is recorded.
    Reset,
}

/// The record of one VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentItem {
    /// The VM's namespace.
    pub namespace: Namespace,
    /// The VM's name.
    pub name: VmName,
    /// Its record.
    #[serde(flatten)]
    pub enrolment: EnrolmentView,
}

/// Why an action was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Only the leader changes records.
    #[error("this collector does not lead")]
    NotLeading,
    /// No such VM, or nothing is recorded of it.
    #[error("{0}")]
    NotFound(String),
    /// The change was not recorded.
    #[error("{0}")]
    Failed(String),
}

#[derive(Debug)]
pub struct EnrolmentAdmin {
    enroller: Arc<Enroller>,
    /// VMs whose connections are verified again at once.
    changed: mpsc::Sender<Vec<VmKey>>,
}

impl EnrolmentAdmin {
    /// Acts on the records of `enroller`, and sends changed VMs to the scraper.
    pub fn new(enroller: Arc<Enroller>, changed: mpsc::Sender<Vec<VmKey>>) -> Self {
        Self { enroller, changed }
    }

    /// Whether this process changes records.
    pub fn write_access(&self) -> &WriteAccess {
        self.enroller.write_access()
    }

    pub fn view(&self, vm: &VmKey) -> Option<EnrolmentView> {
        self.enroller.records().read().get(vm).map(view)
    }

    /// All records, sorted by VM.
    pub fn list(&self) -> Vec<EnrolmentItem> {
        let records = self.enroller.records().read();
        let mut items: Vec<_> = records
            .iter()
            .map(|(vm, record)| EnrolmentItem {
                namespace: vm.namespace.clone(),
                name: vm.name.clone(),
                enrolment: view(record),
            })
            .collect();
        items.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        items
    }

    /// Revokes or resets a VM. When this returns, the change is recorded, and the VM's connections
    /// are verified again.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn act(&self, vm: &VmKey, action: EnrolmentAction) -> Result<EnrolmentView, AdminError> {
        if !self.write_access().leads() {
            return Err(AdminError::NotLeading);
        }
        let known = self.enroller.records().get(vm);
        let new = self.changed_record(vm, known.clone(), action)?;
        let put = self.enroller.records().put(vm, known.clone(), Some(new.clone()));
        put.await.map_err(|error| match error {
            RecordError::Conflict(_) => {
                AdminError::Failed(format!("the record of {vm} has just changed; try again"))
            }
            RecordError::Failed(error) => AdminError::Failed(format!("{vm} was not changed: {error}")),
        })?;
        tracing::warn!(%vm, ?action, "enrolment changed by an admin");
        // The record decides; the deny list reaches collectors that do not lead sooner.
        let serial = known.and_then(|known| known.serial?.parse().ok());
        if let Some(serial) = serial
            && let Err(error) = self.enroller.authority().deny(serial).await
        {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(%vm, error, "the serial number could not be put on the deny list");
        }
        self.enroller.forget_attempts(vm);
        // The scraper ends at shutdown only.
        drop(self.changed.send(vec![vm.clone()]).await);
        Ok(view(&new))
    }

    fn changed_record(
        &self,
        vm: &VmKey,
        known: Option<EnrolmentRecord>,
        action: EnrolmentAction,
    ) -> Result<EnrolmentRecord, AdminError> {
        let fleet = self.enroller.fleet();
        // A VM that cannot be dialled may have an agent that connects.
        let target = fleet.read(|index| index.dial(vm).or_else(|_| index.pushed_target(vm, NO_PEER)));
        let target = target.ok();
        let present = target.as_ref().and_then(|target| target.incarnation().cloned());
        match action {
            EnrolmentAction::Reset => {
                let known =
                    known.ok_or_else(|| AdminError::NotFound(format!("no key is recorded for {vm}")))?;
                Ok(EnrolmentRecord {
                    state: EnrolmentState::Reset,
                    ..known
                })
            }
            EnrolmentAction::Revoke => {
                let is_present =
                    |record: &EnrolmentRecord| target.as_ref().is_none_or(|target| record.is_of(target));
                match (known.filter(is_present), present) {
                    (Some(known), _) => Ok(EnrolmentRecord {
                        state: EnrolmentState::Revoked,
                        ..known
                    }),
                    // The VM has not enrolled yet, or has its certificate from elsewhere.
                    (None, Some(uid)) => Ok(EnrolmentRecord {
                        uid,
                        key_sha256: None,
                        serial: None,
                        not_after: unix_seconds(),
                        enrolled_at: unix_seconds(),
                        state: EnrolmentState::Revoked,
                    }),
                    (None, None) => Err(AdminError::NotFound(format!(
                        "{vm} does not run, and no key is recorded for it"
                    ))),
                }
            }
        }
    }
}

fn view(record: &EnrolmentRecord) -> EnrolmentView {
    EnrolmentView {
        state: record.state,
        uid: record.uid.clone(),
        key_sha256: record.key_sha256,
        serial: record.serial.clone(),
        not_after_ms: record.not_after.saturating_mul(1000),
        enrolled_ms: record.enrolled_at.saturating_mul(1000),
    }
}
