//! Evidence of the enrolment: what this guest knows of its VM.

use virtfleet_agent_state::identity::Observed;
use virtfleet_wire::enrolment::EnrolmentEvidence;

/// The evidence. A value that could not be read is left out.
pub(super) fn evidence(observed: Observed) -> EnrolmentEvidence {
    let identity = observed.identity;
    let interfaces = identity.interfaces.map(|interfaces| interfaces.value);
    EnrolmentEvidence {
        smbios_uuid: identity.smbios_uuid.and_then(|uuid| uuid.value.parse().ok()),
        hostname: identity.hostname.map(|hostname| hostname.value),
        macs: interfaces
            .into_iter()
            .flatten()
            .filter(|interface| interface.physical)
            .filter_map(|interface| interface.mac)
            .collect(),
        boot_id: Some(observed.boot_id).filter(|id| !id.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::identity::{Identity, Interface, Sourced};

    use super::*;

    #[test]
    fn only_addresses_of_devices_are_evidence() {
        let interface = |name: &str, mac: Option<&str>, physical| Interface {
            name: name.to_owned(),
            mac: mac.map(|mac| mac.parse().unwrap()),
            addresses: Vec::new(),
            physical,
        };
        let interfaces = vec![
            interface("eth0", Some("02:00:00:00:00:01"), true),
            interface("eth1", None, true),
            interface("cni0", Some("02:00:00:00:00:02"), false),
        ];
        let uuid = "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34";
        let observed = Observed {
            identity: Identity {
                smbios_uuid: Some(Sourced::new(uuid.to_owned(), "x")),
                interfaces: Some(Sourced::new(interfaces, "x")),
                ..Identity::default()
            },
            ..Observed::default()
        };
        let found = evidence(observed);
        assert_eq!(found.smbios_uuid.unwrap().to_string(), uuid);
        assert_eq!(found.macs, ["02:00:00:00:00:01".parse().unwrap()]);
        assert_eq!((found.hostname, found.boot_id), (None, None));
    }
}
