//! swap: mkswap(8) writes one page, the `union swap_header` of the kernel's `include/linux/swap.h`.

/// Page sizes of the machines on which the agent runs.
const PAGES: [usize; 3] = [4096, 16384, 65536];

pub(super) fn foreign(offset: u64, disk: &[u8], uuid: &[u8; 16], label: &[u8], size: u64) -> Option<usize> {
    if offset > 0 {
        return super::first(disk, 0);
    }
    let ours = |page: &usize| header(*page, uuid, label, size).is_some_and(|page| disk.starts_with(&page));
    let page = PAGES.iter().find(|page| ours(page)).copied();
    super::first(disk, page.unwrap_or_default())
}

fn header(page: usize, uuid: &[u8; 16], label: &[u8], size: u64) -> Option<Vec<u8>> {
    let last = u32::try_from((size / page as u64).checked_sub(1)?).ok()?;
    let mut bytes = vec![0; page];
    bytes.get_mut(1024..1028)?.copy_from_slice(&1_u32.to_ne_bytes());
    bytes.get_mut(1028..1032)?.copy_from_slice(&last.to_ne_bytes());
    bytes.get_mut(1036..1052)?.copy_from_slice(uuid);
    bytes
        .get_mut(1052..1052 + label.len().min(15))?
        .copy_from_slice(&label[..label.len().min(15)]);
    bytes.get_mut(page - 10..)?.copy_from_slice(b"SWAPSPACE2");
    Some(bytes)
}
