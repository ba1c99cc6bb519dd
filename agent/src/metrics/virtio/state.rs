//! What root's last pass has left in `/run/virtfleet/state/nic.json`.

use virtfleet_agent_core::nic::state::{FORMAT, NicState};

use crate::host::{Reread, Roots, Stamped};
use crate::metrics::CollectError;

/// The file, by its path in the guest.
const FILE: &str = "/run/virtfleet/state/nic.json";

pub(super) struct State {
    file: Stamped<Result<Option<NicState>, String>>,
    boot_id: Reread,
}

impl State {
    /// Nothing is read before the first [`State::get`].
    pub(super) fn new(roots: &Roots) -> Self {
        Self {
            file: Stamped::new(roots.root(FILE)),
            boot_id: Reread::new(roots.proc("sys/kernel/random/boot_id")),
        }
    }

    /// The state of this boot. None where root's passes have not run: that is no fault.
    pub(super) fn get(&mut self) -> Result<Option<&NicState>, CollectError> {
        let boot_id = self.boot_id.text().map(|text| text.trim().to_owned());
        match self.file.get(|bytes| {
            let boot_id = boot_id.as_ref().map_err(ToString::to_string)?;
            parse(bytes, boot_id)
        }) {
            Ok(state) => state
                .as_ref()
                .map(Option::as_ref)
                .map_err(|error| CollectError::failed(format!("{FILE}: {error}"))),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// None if it was written in another boot.
fn parse(json: &[u8], boot_id: &str) -> Result<Option<NicState>, String> {
    let state: NicState =
        serde_json::from_slice(json).map_err(|error| format!("not a state of queues: {error}"))?;
    if state.v != FORMAT {
        return Err(format!("format {}, expected {FORMAT}", state.v));
    }
    Ok((state.boot_id == boot_id).then_some(state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_state_of_this_boot_counts() {
        let json = br#"{"v": 1, "bootId": "b", "changes": 2}"#;
        assert_eq!(parse(json, "b").unwrap().unwrap().changes, 2);
        assert_eq!(parse(json, "c"), Ok(None));
        assert_eq!(parse(br#"{"v": 9}"#, "b"), Err("format 9, expected 1".to_owned()));
        assert!(parse(b"{", "b").unwrap_err().starts_with("not a state of queues"));
    }
}
