//! Claims and DataVolumes of a script, as the API server answers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use virtfleet_collector::volumes::{claim_state, data_volume_state};
use virtfleet_collector_core::volumes::{ReadAnswer, ReadVolume, ReadVolumes, VolumesToRead};

use super::times::set_times;

/// The answers of the API server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ScriptedVolumes {
    #[serde(default)]
    claims: ScriptedKind,
    #[serde(default)]
    data_volumes: ScriptedKind,
}

/// Objects of a kind by name, or why none can be read.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ScriptedKind {
    Refused(Refusal),
    Objects(BTreeMap<String, Value>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Refusal {
    /// The collector may not read them.
    Denied,
    /// The API server does not serve them.
    NotServed,
}

impl Default for ScriptedKind {
    fn default() -> Self {
        Self::Objects(BTreeMap::new())
    }
}

impl ScriptedKind {
    fn answer<T>(&self, name: &str, read: fn(Value) -> Result<T, serde_json::Error>) -> ReadAnswer<T> {
        match self {
            Self::Refused(Refusal::Denied) => ReadAnswer::Denied,
            Self::Refused(Refusal::NotServed) => ReadAnswer::NotServed,
            Self::Objects(objects) => match objects.get(name) {
                Some(object) => ReadAnswer::Found(read(object.clone()).unwrap()),
                None => ReadAnswer::NotFound,
            },
        }
    }
}

impl ScriptedVolumes {
    /// Sets the times that the API server and CDI set.
    pub(super) fn set_times(&mut self, before: Option<&Self>, now: &str) {
        let pairs = [
            (&mut self.claims, before.map(|before| &before.claims)),
            (&mut self.data_volumes, before.map(|before| &before.data_volumes)),
        ];
        for (kind, before) in pairs {
            let ScriptedKind::Objects(objects) = kind else {
                continue;
            };
            for (name, object) in objects {
                let known = match before {
                    Some(ScriptedKind::Objects(before)) => before.get(name),
                    _ => None,
                };
                set_times(object, known, now);
            }
        }
    }

    /// What is read of the volumes of a VM.
    pub(super) fn read(&self, due: &VolumesToRead) -> ReadVolumes {
        let volumes = due.volumes.iter().map(|volume| {
            let name = volume.claim.as_str();
            let filled = || self.data_volumes.answer(name, data_volume_state);
            let filled = volume.is_data_volume.then(filled);
            ReadVolume::new(volume.clone(), self.claims.answer(name, claim_state), filled)
        });
        ReadVolumes {
            at_ms: 0,
            volumes: volumes.collect(),
            manifest: "infra/rbac.yaml",
        }
    }
}
