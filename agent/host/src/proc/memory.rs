//! Giving back memory that only the start needed.
//!
//! Half of what is resident of the agent is its own code, and much of that runs once: settings, checks, certificates. The
//! kernel never takes such pages back while it has others to take. What is given back here are pages that stand
//! unchanged in the program's file: who needs one again finds it in the page cache, or on the disk.

use std::ops::Range;

use nix::libc;

/// Far more than the kernel says of all mappings of a process such as ours.
const LIMIT: usize = 4 << 20;

/// Gives back the pages of this program's code and constants, and what the allocator holds for nobody. To be called when the
/// start is over. Where the kernel does not tell enough, nothing is given back.
pub fn give_back() {
    let told = crate::read_bounded("/proc/self/smaps".as_ref(), LIMIT);
    let told = told.unwrap_or_default();
    let ours = give_back as *const () as usize;
    for range in unchanged(&String::from_utf8_lossy(&told), ours) {
        // SAFETY: the pages are a private mapping of a file, cannot be written, and no page of it has ever been (none is
        // anonymous, in memory or in swap): the next access reads the same bytes from the file. Only data that a thread has
        // written could be lost by this call.
        #[expect(unsafe_code, reason = "madvise(2) has no safe form")]
        unsafe {
            libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED);
        }
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time by any thread; it frees nothing that is in use.
    #[expect(unsafe_code, reason = "a C function")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The mappings in `smaps` (kernel: `fs/proc/task_mmu.c`) of the file whose code has the address `ours`, that can only be
/// read or run and have no page of their own. What the loader has relocated can only be read as well, but its pages have been
/// written, and are no longer those of the file.
fn unchanged(smaps: &str, ours: usize) -> Vec<Range<usize>> {
    let mut mappings: Vec<Mapping<'_>> = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::begins(line) {
            mappings.push(mapping);
        } else if let Some(mapping) = mappings.last_mut() {
            for (key, own) in [("Anonymous:", 0), ("Swap:", 1)] {
                if let Some(amount) = line.strip_prefix(key) {
                    mapping.none[own] = amount.trim() == "0 kB";
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
        .filter(|one| one.path == file && matches!(one.rights, "r-xp" | "r--p") && one.none == [true; 2])
        .map(|one| one.range)
        .collect()
}

struct Mapping<'text> {
    range: Range<usize>,
    rights: &'text str,
    path: &'text str,
    /// Whether it is known to have no anonymous page, and none in swap. A page of a file that is still to be written to the disk, as after an upgrade, is the
    /// page cache's, and no page of ours.
    none: [bool; 2],
}

impl<'text> Mapping<'text> {
    /// From a line such as `55d0c0000000-55d0c0219000 r-xp 00001000 fe:00 812  /usr/bin/virtfleet-agent`.
    fn begins(line: &'text str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(Self {
            range: number(start)?..number(end)?,
            rights: words.next()?,
            path: words.nth(3).unwrap_or_default(),
            none: [false; 2],
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
    fn only_pages_that_are_the_files_are_given_back() {
        let none = ["0"; 2];
        let all = [
            mapping("1000-2000 r--p 00000000 fe:00 812    /usr/bin/agent", none),
            mapping("2000-5000 r-xp 00001000 fe:00 812    /usr/bin/agent", none),
            // Relocated, and the same in swap; data; others' code; memory.
            mapping("5000-6000 r--p 00004000 fe:00 812    /usr/bin/agent", ["4", "0"]),
            mapping("6000-7000 r--p 00004000 fe:00 812    /usr/bin/agent", ["0", "4"]),
            mapping("7000-8000 rw-p 00005000 fe:00 812    /usr/bin/agent", none),
            mapping("8000-9000 r-xp 00000000 fe:00 813    /usr/lib/other", none),
            mapping("9000-a000 r-xp 00000000 00:00 0      [vdso]", none),
            mapping("a000-b000 rw-p 00000000 00:00 0", none),
        ];
        let text = all.concat();
        assert_eq!(unchanged(&text, 0x2abc), [0x1000..0x2000, 0x2000..0x5000]);
        assert_eq!(unchanged(&text, 0x9000), [], "no file");
        assert_eq!(unchanged(&text, 0xf000), [], "nothing is there");
        // A kernel that does not say all of it.
        assert_eq!(unchanged(&text.replace("Swap", "Swop"), 0x2abc), []);
        assert_eq!(unchanged("", 0), []);
    }

    /// Our own code in `smaps`: where it is, and how much of it is resident, in KiB.
    fn resident() -> (Range<usize>, usize) {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = give_back as *const () as usize;
        let mut lines = smaps.lines();
        let mapping = lines
            .by_ref()
            .find_map(|line| Mapping::begins(line).filter(|mapping| mapping.range.contains(&ours)));
        let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        let rss = rss.trim().trim_end_matches(" kB").parse().unwrap();
        (mapping.unwrap().range, rss)
    }

    #[test]
    fn code_leaves_memory() {
        let (code, _) = resident();
        // The kernel maps each page that it is asked for.
        let memory = fs::File::open("/proc/self/mem").unwrap();
        for address in code.clone().step_by(4096) {
            memory.read_exact_at(&mut [0], address as u64).unwrap();
        }
        let (_, before) = resident();
        assert!(before * 1024 >= code.len() / 2, "{before} KiB of {code:?}");
        give_back();
        let (_, after) = resident();
        assert!(after < before / 2, "{before} KiB, then {after} KiB");
    }

    #[test]
    fn the_program_runs_on_without_its_pages() {
        let words: Vec<String> = (0..100).map(|n| format!("{n}")).collect();
        give_back();
        assert_eq!(words.concat().len(), 190);
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = give_back as *const () as usize;
        assert!(unchanged(&smaps, ours).iter().any(|range| range.contains(&ours)));
    }
}
