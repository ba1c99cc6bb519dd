//! The UUIDs that a declared disk's filesystem and LUKS header get: made from the VM's UUID and the disk's name, so that a run
//! that was cut short finds again what it had begun, and a journal that was lost is no reason to guess.

use uuid::Uuid;

/// The filesystem's UUID: version 5 of RFC 9562, the VM's UUID as its namespace. None when the VM has no UUID of its own.
pub fn filesystem(vm_uuid: &str, name: &str) -> Option<String> {
    made(vm_uuid, "filesystem", name)
}

/// The LUKS header's UUID, made like that of the filesystem in it and never the same.
pub fn luks(vm_uuid: &str, name: &str) -> Option<String> {
    made(vm_uuid, "luks", name)
}

/// A name has no `/`, so no two of these texts are the same.
fn made(vm_uuid: &str, what: &str, name: &str) -> Option<String> {
    let vm = Uuid::parse_str(vm_uuid.trim()).ok()?;
    // What firmware shows that was given none.
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
    fn a_uuid_is_the_same_at_every_boot_and_for_ever() {
        // Disks out there carry these: a change of the rule would make strangers of them.
        assert_eq!(
            filesystem(VM, "data").unwrap(),
            "7992341b-b34a-533c-9c2d-91ddbe88d357"
        );
        assert_eq!(luks(VM, "data").unwrap(), "e2b5903c-ebc3-5426-931f-9f2c8d498de3");
        assert_eq!(filesystem(&VM.to_uppercase(), "data"), filesystem(VM, "data"));
    }

    #[test]
    fn without_a_vm_uuid_there_is_none() {
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
        fn two_names_never_share_one(a in "[a-z0-9-]{1,40}", b in "[a-z0-9-]{1,40}") {
            prop_assert_ne!(filesystem(VM, &a), luks(VM, &a));
            prop_assert_ne!(filesystem(VM, &a), luks(VM, &b));
            prop_assert_eq!(filesystem(VM, &a) == filesystem(VM, &b), a == b);
            prop_assert_eq!(luks(VM, &a) == luks(VM, &b), a == b);
        }
    }
}
