//! Known content of a device: what blkid finds, and the few kinds that blkid does not know.

/// First bytes of KubeVirt's downward metrics disk (`pkg/downwardmetrics/vhostmd/disk.go`).
const DOWNWARD_METRICS: &[u8] = b"mvbd";
/// Header of a GUID partition table (UEFI 2.10, 5.3.2). Its backup is in the last logical block of
/// the disk; libblkid checks that only if the first block has a protective MBR.
const GPT: &[u8] = b"EFI PART";

/// Kind of content that blkid does not know, from the first MiB and the last 64 KiB.
pub(super) fn own(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    if head.starts_with(DOWNWARD_METRICS) {
        return Some("mvbd");
    }
    let block_begins = |bytes: &[u8], size: usize| {
        bytes
            .len()
            .checked_sub(size)
            .is_some_and(|at| bytes[at..].starts_with(GPT))
    };
    let first = |size: usize| head.get(size..).is_some_and(|rest| rest.starts_with(GPT));
    let gpt = [512, 4096]
        .iter()
        .any(|size| first(*size) || block_begins(tail, *size));
    gpt.then_some("gpt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_recognized_by_the_first_and_last_blocks() {
        let mut bytes = vec![0; 64 << 10];
        assert_eq!(own(&bytes, &bytes), None);
        let blank = bytes.clone();
        bytes[..4].copy_from_slice(b"mvbd");
        assert_eq!(own(&bytes, &blank), Some("mvbd"));
        for place in [512, 4096] {
            let mut bytes = blank.clone();
            bytes[place..place + 8].copy_from_slice(GPT);
            assert_eq!(own(&bytes, &blank), Some("gpt"));
            let mut bytes = blank.clone();
            let place = bytes.len() - place;
            bytes[place..place + 8].copy_from_slice(GPT);
            assert_eq!(own(&blank, &bytes), Some("gpt"));
        }
        assert_eq!(own(b"mv", b""), None);
    }
}
