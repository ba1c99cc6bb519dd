//! A hash of a VM's name that never changes.

use virtfleet_wire::ids::VmKey;

/// FNV-1a of `<namespace>/<name>`: the same in every version of the collector, which the standard
/// library's hash is not.
pub(super) fn stable_hash(vm: &VmKey) -> u64 {
    let text = [vm.namespace.as_str(), "/", vm.name.as_str()];
    let hash = text
        .iter()
        .flat_map(|part| part.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    // FNV mixes its last bytes little, and names differ in their last digits.
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
