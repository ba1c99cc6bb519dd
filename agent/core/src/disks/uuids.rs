//! UUIDs of a declared disk's filesystem and LUKS header, derived from the VM's UUID and the disk's
//! name. An interrupted run finds its work by them, and so does an agent that lost its journal.

use uuid::Uuid;

/// UUID of the filesystem: version 5 of RFC 9562 with the VM's UUID as namespace. `None` if the VM
/// has no UUID of its own.
pub fn filesystem(vm_uuid: &str, name: &str) -> Option<String> {
    made(vm_uuid, "filesystem", name)
}

/// UUID of the LUKS header, derived like that of the filesystem but never equal.
pub fn luks(vm_uuid: &str, name: &str) -> Option<String> {
    made(vm_uuid, "luks", name)
}

/// Derives a UUID. A name contains no `/`, so the hashed texts are unique.
fn made(vm_uuid: &str, what: &str, name: &str) -> Option<String> {
    let vm = Uuid::parse_str(vm_uuid.trim()).ok()?;
    // Firmware without a UUID shows one of these.
    if vm.is_nil() || vm.is_max() || name.is_empty() {
        return None;
    }
    Some(Uuid::new_v5(&vm, format!("virtfleet/disks/{what}/{name}").as_bytes()).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VM: &str = "6f1c1f3a-95d6-5e0b-8b43-7a0b5d5b0a01";

    #[test]
    fn derived_uuids_are_stable() {
        // Existing disks have these UUIDs: if the rule changed, the agent would not recognise them.
        assert_eq!(
            filesystem(VM, "data").unwrap(),
            "7992341b-b34a-533c-9c2d-91ddbe88d357"
        );
        assert_eq!(luks(VM, "data").unwrap(), "e2b5903c-ebc3-5426-931f-9f2c8d498de3");
        assert_eq!(filesystem(&VM.to_uppercase(), "data"), filesystem(VM, "data"));
    }

    #[test]
    fn no_vm_uuid_yields_none() {
        for vm in [
            "",
            "none",
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
        ] {
            assert_eq!(filesystem(vm, "data"), None, "{vm}");
            assert_eq!(luks(vm, "data"), None, "{vm}");
        }
    }

    proptest! {
        #[test]
        fn uuids_are_unique_per_name(a in "[a-z0-9-]{1,40}", b in "[a-z0-9-]{1,40}") {
            prop_assert_ne!(filesystem(VM, &a), luks(VM, &a));
            prop_assert_ne!(filesystem(VM, &a), luks(VM, &b));
            prop_assert_eq!(filesystem(VM, &a) == filesystem(VM, &b), a == b);
            prop_assert_eq!(luks(VM, &a) == luks(VM, &b), a == b);
        }
    }
}
