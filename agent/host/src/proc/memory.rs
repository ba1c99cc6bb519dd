//! Releases memory that only the start needed.
//!
//! About half of the agent's resident memory is its own code, much of which runs once: settings,
//! checks, certificates. The kernel does not reclaim such pages without memory pressure. The
//! released pages are unchanged pages of the program's file: a later access reads them from the
//! page cache or the disk.

use std::ops::Range;

use nix::libc;

/// Maximum size of `smaps` in bytes; far more than this process needs.
const MAX_SMAPS_BYTES: usize = 4 << 20;

/// Releases the pages of this program's code and constants, and free memory of the allocator. Call
/// it after the start. Does nothing if the kernel does not provide sufficient information.
pub fn release_memory() {
    let smaps = crate::read_bounded("/proc/self/smaps".as_ref(), MAX_SMAPS_BYTES);
    let smaps = smaps.unwrap_or_default();
    let ours = release_memory as *const () as usize;
    for range in unchanged(&String::from_utf8_lossy(&smaps), ours) {
        // SAFETY: the pages are a private mapping of a file, cannot be written, and none of
        // them has ever been written (none is anonymous, in memory or in swap): the next
        // access reads the same bytes from the file. The call could only lose data that a thread
        // has written.
        #[expect(unsafe_code, reason = "madvise(2) has no safe form")]
        unsafe {
            libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED);
        }
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: any thread may call malloc_trim(3) at any time; it frees no memory in use.
    #[expect(unsafe_code, reason = "a C function")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The mappings in `smaps` (kernel: `fs/proc/task_mmu.c`) of the file whose code contains the
/// address `ours`, if they are only readable or executable and have no anonymous pages. Relocated
/// data is only readable too, but the loader has written its pages, so they differ from the file.
fn unchanged(smaps: &str, ours: usize) -> Vec<Range<usize>> {
    let mut mappings: Vec<Mapping<'_>> = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::parse_header(line) {
            mappings.push(mapping);
        } else if let Some(mapping) = mappings.last_mut() {
            for (key, own) in [("Anonymous:", 0), ("Swap:", 1)] {
                if let Some(amount) = line.strip_prefix(key) {
                    mapping.no_own_pages[own] = amount.trim() == "0 kB";
                }
            }
        }
    }
    let file = mappings
        .iter()
        .find(|one| one.range.contains(&ours) && one.path.starts_with('/'));
    let Some(file) = file.map(|mapping| mapping.path) else {
        return Vec::new();
    };
    mappings
        .into_iter()
        .filter(|one| {
            one.path == file && matches!(one.rights, "r-xp" | "r--p") && one.no_own_pages == [true; 2]
        })
        .map(|one| one.range)
        .collect()
}

struct Mapping<'text> {
    range: Range<usize>,
    rights: &'text str,
    path: &'text str,
    /// Whether it is known to have no anonymous page, and none in swap. A dirty page of the
    /// file itself, as after an upgrade, belongs to the page cache.
    no_own_pages: [bool; 2],
}

impl<'text> Mapping<'text> {
    /// Parses a line such as `55d0c0000000-55d0c0219000 r-xp 00001000 fe:00 812
    /// /usr/bin/virtfleet-agent`.
    fn parse_header(line: &'text str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(Self {
            range: number(start)?..number(end)?,
            rights: words.next()?,
            path: words.nth(3).unwrap_or_default(),
            no_own_pages: [false; 2],
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::FileExt as _};

    use super::*;

    fn mapping(head: &str, own: [&str; 2]) -> String {
        let [anonymous, swap] = own;
        format!(
            "{head}\nSize: 4 kB\nRss: 4 kB\nPrivate_Dirty: 4 kB\nAnonymous:   {anonymous} kB\nSwap: {swap} kB\n\
             VmFlags: rd mr mw me\n"
        )
    }

    #[test]
    fn only_unchanged_pages_of_the_file_are_released() {
        let no_own_pages = ["0"; 2];
        let all = [
            mapping(
                "1000-2000 r--p 00000000 fe:00 812    /usr/bin/agent",
                no_own_pages,
            ),
            mapping(
                "2000-5000 r-xp 00001000 fe:00 812    /usr/bin/agent",
                no_own_pages,
            ),
            // Relocated data in memory and in swap; data; another program's code; anonymous memory.
            mapping("5000-6000 r--p 00004000 fe:00 812    /usr/bin/agent", ["4", "0"]),
            mapping("6000-7000 r--p 00004000 fe:00 812    /usr/bin/agent", ["0", "4"]),
            mapping(
                "7000-8000 rw-p 00005000 fe:00 812    /usr/bin/agent",
                no_own_pages,
            ),
            mapping(
                "8000-9000 r-xp 00000000 fe:00 813    /usr/lib/other",
                no_own_pages,
            ),
            mapping("9000-a000 r-xp 00000000 00:00 0      [vdso]", no_own_pages),
            mapping("a000-b000 rw-p 00000000 00:00 0", no_own_pages),
        ];
        let text = all.concat();
        assert_eq!(unchanged(&text, 0x2abc), [0x1000..0x2000, 0x2000..0x5000]);
        assert_eq!(unchanged(&text, 0x9000), [], "not a file");
        assert_eq!(unchanged(&text, 0xf000), [], "no mapping there");
        // A kernel with incomplete information.
        assert_eq!(unchanged(&text.replace("Swap", "Swop"), 0x2abc), []);
        assert_eq!(unchanged("", 0), []);
    }

    /// This program's code in `smaps`: its address range, and its resident size in KiB.
    fn resident() -> (Range<usize>, usize) {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = release_memory as *const () as usize;
        let mut lines = smaps.lines();
        let mapping = lines
            .by_ref()
            .find_map(|line| Mapping::parse_header(line).filter(|mapping| mapping.range.contains(&ours)));
        let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        let rss = rss.trim().trim_end_matches(" kB").parse().unwrap();
        (mapping.unwrap().range, rss)
    }

    #[test]
    fn code_pages_are_released() {
        let (code, _) = resident();
        // The kernel maps each page that is accessed.
        let memory = fs::File::open("/proc/self/mem").unwrap();
        for address in code.clone().step_by(4096) {
            memory.read_exact_at(&mut [0], address as u64).unwrap();
        }
        let (_, before) = resident();
        assert!(before * 1024 >= code.len() / 2, "{before} KiB of {code:?}");
        release_memory();
        let (_, after) = resident();
        assert!(after < before / 2, "{before} KiB, then {after} KiB");
    }

    #[test]
    fn the_program_still_runs_after_the_release() {
        let words: Vec<String> = (0..100).map(|n| format!("{n}")).collect();
        release_memory();
        assert_eq!(words.concat().len(), 190);
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = release_memory as *const () as usize;
        assert!(unchanged(&smaps, ours).iter().any(|range| range.contains(&ours)));
    }
}
