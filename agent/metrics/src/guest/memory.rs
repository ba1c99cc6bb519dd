//! `guest_memory`: memory that the host took back (balloon), and memory management: swap, zram,
//! huge pages, merged pages.

use std::path::Path;

use virtfleet_agent_core::procfs::{meminfo::fields, pairs::pairs};
use virtfleet_agent_host::{Reread, Roots, page_size};
use virtfleet_wire::exposition::{MetricType, Page};

use super::files;
use crate::{CollectError, Collector, Context, RegistryError};

/// virtio device type of a balloon (Virtual I/O Device specification, 5).
const BALLOON: &str = "0x0005";
/// Feature bits of a balloon (same document, 5.5.3).
const DEFLATE_ON_OOM: usize = 2;
const REPORTING: usize = 5;

struct Memory {
    roots: Roots,
    meminfo: Reread,
    vmstat: Reread,
    page_bytes: f64,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Memory {
        meminfo: Reread::new(context.roots.proc("meminfo")).single_record(),
        vmstat: Reread::new(context.roots.proc("vmstat")),
        roots: context.roots.clone(),
        page_bytes: page_size() as f64,
        buffer: Vec::new(),
    }))
}

impl Collector for Memory {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        self.balloon(page);
        self.swap(page);
        self.zram(page);
        self.huge_pages(page);
        self.merged(page);
        Ok(())
    }
}

impl Memory {
    fn balloon(&mut self, page: &mut Page) {
        let devices = self.roots.sys("bus/virtio/devices");
        let mut balloon = None;
        for name in files::names(&devices) {
            let device = devices.join(&name);
            if files::text(&device.join("device"), &mut self.buffer).map(str::trim) == Some(BALLOON) {
                let features = files::text(&device.join("features"), &mut self.buffer).unwrap_or_default();
                let has = |bit| features.as_bytes().get(bit) == Some(&b'1');
                balloon = Some((name, [has(DEFLATE_ON_OOM), has(REPORTING)]));
                break;
            }
        }
        page.gauge(
            "virtfleet_guest_balloon_present",
            "Whether the guest has a memory balloon, with which the host can reclaim memory.",
            f64::from(u8::from(balloon.is_some())),
        );
        let Some((device, [on_oom, reporting])) = balloon else {
            return;
        };
        let word = |is| if is { "true" } else { "false" };
        let mut family = page.family(
            "virtfleet_guest_balloon_info",
            "The balloon and its negotiated features, always 1.",
            MetricType::Gauge,
        );
        let labels = [
            ("device", device.as_str()),
            ("deflate_on_oom", word(on_oom)),
            ("free_page_reporting", word(reporting)),
        ];
        family.sample(&labels, 1.0);
        let Ok(text) = self.vmstat.text() else { return };
        let (mut inflated, mut deflated, mut now) = (None, None, None);
        for (field, value) in pairs(&text).filter_map(Result::ok) {
            match field {
                "balloon_inflate" => inflated = Some(value),
                "balloon_deflate" => deflated = Some(value),
                "nr_balloon_pages" => now = Some(value),
                _ => {}
            }
        }
        if let (Some(inflated), Some(deflated)) = (inflated, deflated) {
            page.counter(
                "virtfleet_guest_balloon_inflated_bytes_total",
                "Memory that the guest returned to the host through the balloon.",
                inflated as f64 * self.page_bytes,
            );
            page.counter(
                "virtfleet_guest_balloon_deflated_bytes_total",
                "Memory that the guest got back from the host through the balloon.",
                deflated as f64 * self.page_bytes,
            );
            now = now.or(inflated.checked_sub(deflated));
        }
        if let Some(now) = now {
            page.gauge(
                "virtfleet_guest_balloon_bytes",
                "Memory of the guest that the balloon currently occupies.",
                now as f64 * self.page_bytes,
            );
        }
    }

    fn swap(&mut self, page: &mut Page) {
        let Ok(text) = self.meminfo.text() else { return };
        let field = |name: &str| {
            let mut fields = fields(&text).filter_map(Result::ok);
            fields.find(|field| field.name == name).map(|field| field.value)
        };
        if let (Some(all), Some(free)) = (field("SwapTotal"), field("SwapFree"))
            && free <= all
        {
            let share = if all == 0 {
                0.0
            } else {
                (all - free) as f64 / all as f64
            };
            page.gauge(
                "virtfleet_guest_swap_used_ratio",
                "Used share of the swap space, from 0 to 1; 0 without swap.",
                share,
            );
        }
    }

    fn zram(&mut self, page: &mut Page) {
        let block = self.roots.sys("block");
        let mut rows: Vec<(String, [f64; 4])> = Vec::new();
        for name in files::names(&block) {
            if !name.starts_with("zram") {
                continue;
            }
            let size = files::number(&block.join(&name).join("size"), &mut self.buffer);
            // Not set up.
            if size.is_none_or(|size| size == 0) {
                continue;
            }
            // orig_data_size compr_data_size mem_used_total …, in bytes (kernel:
            // Documentation/admin-guide/blockdev/zram.rst).
            let Some(text) = files::text(&block.join(&name).join("mm_stat"), &mut self.buffer) else {
                continue;
            };
            let mut columns = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
            let mut next = || columns.next().flatten().map(|value| value as f64);
            if let (Some(size), Some(data), Some(packed), Some(used)) = (size, next(), next(), next()) {
                rows.push((name, [size as f64 * 512.0, data, packed, used]));
            }
        }
        for (index, (name, help)) in [
            ("virtfleet_guest_zram_size_bytes", "Capacity of a zram device."),
            (
                "virtfleet_guest_zram_data_bytes",
                "Uncompressed size of the data in a zram device.",
            ),
            (
                "virtfleet_guest_zram_compressed_bytes",
                "Compressed size of the data in a zram device.",
            ),
            (
                "virtfleet_guest_zram_memory_bytes",
                "Memory used by a zram device.",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let mut family = page.family(name, help, MetricType::Gauge);
            for (device, values) in &rows {
                family.sample(&[("device", device)], values[index]);
            }
        }
    }

    fn huge_pages(&mut self, page: &mut Page) {
        let all = self.roots.sys("kernel/mm/hugepages");
        let mut rows: Vec<(String, f64, [Option<u64>; 4])> = Vec::new();
        for folder in files::names(&all) {
            let size = folder
                .strip_prefix("hugepages-")
                .and_then(|rest| rest.strip_suffix("kB")?.parse::<u32>().ok());
            let Some(size) = size else { continue };
            let mut read = |file: &str| files::number(&all.join(&folder).join(file), &mut self.buffer);
            let values = [
                "nr_hugepages",
                "free_hugepages",
                "resv_hugepages",
                "surplus_hugepages",
            ]
            .map(&mut read);
            rows.push((format!("{size}kB"), f64::from(size) * 1024.0, values));
        }
        for (index, (name, help)) in [
            (
                "virtfleet_guest_huge_pages_bytes",
                "Memory reserved as huge pages.",
            ),
            ("virtfleet_guest_huge_pages_free_bytes", "Free huge pages."),
            (
                "virtfleet_guest_huge_pages_reserved_bytes",
                "Free huge pages that are reserved.",
            ),
            (
                "virtfleet_guest_huge_pages_surplus_bytes",
                "Huge pages beyond the configured number (surplus).",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let mut family = page.family(name, help, MetricType::Gauge);
            for (size, bytes, values) in &rows {
                if let Some(value) = values[index] {
                    family.sample(&[("page_size", size)], value as f64 * bytes);
                }
            }
        }
    }

    /// Kernel same-page merging (kernel: `Documentation/admin-guide/mm/ksm.rst`).
    fn merged(&mut self, page: &mut Page) {
        let folder = self.roots.sys("kernel/mm/ksm");
        let mut read = |file: &str| files::number(&Path::new(&folder).join(file), &mut self.buffer);
        let Some(run) = read("run") else { return };
        page.gauge(
            "virtfleet_guest_ksm_running",
            "Whether the kernel merges identical pages (KSM).",
            f64::from(u8::from(run == 1)),
        );
        if let Some(shared) = read("pages_shared") {
            page.gauge(
                "virtfleet_guest_ksm_shared_bytes",
                "Memory in merged pages (KSM).",
                shared as f64 * self.page_bytes,
            );
        }
        if let Some(sharing) = read("pages_sharing") {
            page.gauge(
                "virtfleet_guest_ksm_saved_bytes",
                "Memory saved by merging identical pages (KSM).",
                sharing as f64 * self.page_bytes,
            );
        }
    }
}
