//! The metrics page of a simulated guest: the families that node_exporter has on a Linux guest, 250
//! to 400 samples.

use virtfleet_wire::exposition::{MetricType, Page};

use super::{model::Model, plan::Guest};

use MetricType::{Counter, Gauge};

/// Writes the page of `guest`, `elapsed` seconds after the simulation began, at `now` seconds since
/// 1970.
pub fn write_page(page: &mut Page, guest: &Guest, model: &Model, elapsed: f64, now: f64) {
    let at = At {
        guest,
        model,
        elapsed,
        now,
    };
    at.cpu(page);
    at.diskstats(page);
    at.filesystem(page);
    at.loadavg(page);
    at.meminfo(page);
    at.netdev(page);
    At::os(page);
    at.pressure(page);
    at.scrape(page);
    at.stat(page);
    at.time(page);
    at.uname(page);
    at.vmstat(page);
}

struct At<'guest> {
    guest: &'guest Guest,
    model: &'guest Model,
    elapsed: f64,
    now: f64,
}

#[rustfmt::skip]
const COLLECTORS: [&str; 12] = [
    "cpu", "diskstats", "filesystem", "loadavg", "meminfo", "netdev", "os", "pressure", "stat", "time", "uname",
    "vmstat",
];

/// Gauges of meminfo: name as in `/proc/meminfo` with brackets spelled out, and its share of the
/// memory.
#[rustfmt::skip]
const MEMORY: [(&str, f64); 42] = [
    ("MemTotal", 1.0), ("MemFree", 0.2), ("MemAvailable", 0.55), ("Buffers", 0.02), ("Cached", 0.3),
    ("SwapCached", 0.0), ("Active", 0.35), ("Inactive", 0.3), ("Active_anon", 0.2), ("Inactive_anon", 0.05),
    ("Active_file", 0.15), ("Inactive_file", 0.25), ("Unevictable", 0.0), ("Mlocked", 0.0), ("SwapTotal", 0.0),
    ("SwapFree", 0.0), ("Dirty", 0.001), ("Writeback", 0.0), ("AnonPages", 0.25), ("Mapped", 0.08),
    ("Shmem", 0.01), ("KReclaimable", 0.05), ("Slab", 0.07), ("SReclaimable", 0.05), ("SUnreclaim", 0.02),
    ("KernelStack", 0.001), ("PageTables", 0.003), ("NFS_Unstable", 0.0), ("Bounce", 0.0),
    ("WritebackTmp", 0.0), ("CommitLimit", 0.5), ("Committed_AS", 0.6), ("VmallocTotal", 8.0),
    ("VmallocUsed", 0.003), ("VmallocChunk", 0.0), ("Percpu", 0.002), ("HardwareCorrupted", 0.0),
    ("AnonHugePages", 0.05), ("Hugepagesize", 0.0), ("Hugetlb", 0.0), ("DirectMap4k", 0.05),
    ("DirectMap2M", 0.95),
];

/// Counters of a block device: the family's name after `node_disk_`, and its rate.
#[rustfmt::skip]
const DISK: [(&str, f64); 15] = [
    ("reads_completed_total", 20.0), ("reads_merged_total", 2.0), ("read_bytes_total", 400_000.0),
    ("read_time_seconds_total", 0.01), ("writes_completed_total", 50.0), ("writes_merged_total", 10.0),
    ("written_bytes_total", 900_000.0), ("write_time_seconds_total", 0.05), ("io_time_seconds_total", 0.03),
    ("io_time_weighted_seconds_total", 0.06), ("discards_completed_total", 0.1), ("discards_merged_total", 0.0),
    ("discarded_sectors_total", 800.0), ("flush_requests_total", 1.0),
    ("flush_requests_time_seconds_total", 0.002),
];

/// Counters of an interface, each with its rate, for both directions.
#[rustfmt::skip]
const NETWORK: [(&str, f64); 8] = [
    ("bytes", 60_000.0), ("packets", 120.0), ("errs", 0.0), ("drop", 0.01), ("fifo", 0.0), ("compressed", 0.0),
    ("frame_or_colls", 0.0), ("multicast_or_carrier", 0.0),
];

impl At<'_> {
    fn cpu(&self, page: &mut Page) {
        let modes = [
            ("idle", 1.0 - self.model.busy),
            ("iowait", 0.005),
            ("irq", 0.0),
            ("nice", 0.001),
            ("softirq", 0.004),
            ("steal", 0.01),
            ("system", self.model.busy * 0.3),
            ("user", self.model.busy * 0.65),
        ];
        let mut family = page.family(
            "node_cpu_seconds_total",
            "Seconds that each CPU spent in each mode.",
            Counter,
        );
        for cpu in 0..self.model.cpus {
            let cpu = cpu.to_string();
            for (mode, share) in modes {
                let value = self
                    .model
                    .counter(&format!("cpu{cpu}{mode}"), share, self.elapsed);
                family.sample(&[("cpu", &cpu), ("mode", mode)], (value * 100.0).floor() / 100.0);
            }
        }
        let mut family = page.family(
            "node_cpu_guest_seconds_total",
            "Seconds that each CPU spent for guests.",
            Counter,
        );
        for cpu in 0..self.model.cpus {
            let cpu = cpu.to_string();
            family.sample(&[("cpu", &cpu), ("mode", "nice")], 0.0);
            family.sample(&[("cpu", &cpu), ("mode", "user")], 0.0);
        }
    }

    fn diskstats(&self, page: &mut Page) {
        for (name, rate) in DISK {
            let name = format!("node_disk_{name}");
            let mut family = page.family(&name, "Counter of a block device.", Counter);
            for device in &self.model.disks {
                family.sample(
                    &[("device", device)],
                    self.model.count(&format!("{name}{device}"), rate, self.elapsed),
                );
            }
        }
        let mut family = page.family("node_disk_io_now", "Requests in flight.", Gauge);
        for device in &self.model.disks {
            family.sample(
                &[("device", device)],
                self.model
                    .gauge(&format!("now{device}"), 2.0, 1.0, self.elapsed)
                    .round(),
            );
        }
        let mut family = page.family("node_disk_info", "What a block device is.", Gauge);
        for (minor, device) in self.model.disks.iter().enumerate() {
            let labels = [
                ("device", device.as_str()),
                ("major", "254"),
                ("minor", &(minor * 16).to_string()),
                ("model", ""),
                ("path", "pci-0000:07:00.0"),
                ("revision", ""),
                ("rotational", "0"),
                ("serial", ""),
                ("wwn", ""),
            ];
            family.sample(&labels, 1.0);
        }
    }

    fn filesystem(&self, page: &mut Page) {
        let size = |index: usize| f64::from(1 << 30) * [40.0, 100.0, 500.0][index];
        let gauges: [(&str, f64); 7] = [
            ("node_filesystem_avail_bytes", 0.55),
            ("node_filesystem_device_error", 0.0),
            ("node_filesystem_files", 0.0),
            ("node_filesystem_files_free", 0.0),
            ("node_filesystem_free_bytes", 0.6),
            ("node_filesystem_readonly", 0.0),
            ("node_filesystem_size_bytes", 1.0),
        ];
        for (name, share) in gauges {
            let mut family = page.family(name, "Gauge of a mounted filesystem.", Gauge);
            for (index, device) in self.model.disks.iter().enumerate() {
                let value = match name {
                    "node_filesystem_files" => size(index) / 16_384.0,
                    "node_filesystem_files_free" => size(index) / 20_000.0,
                    "node_filesystem_size_bytes" => size(index),
                    _ => {
                        size(index)
                            * self
                                .model
                                .gauge(&format!("{name}{device}"), share, 0.05, self.elapsed)
                    }
                };
                let mountpoint = ["/", "/var/lib/containerd", "/var/lib/kubelet"][index];
                let device = format!("/dev/{device}1");
                let labels = [
                    ("device", device.as_str()),
                    ("device_error", ""),
                    ("fstype", "ext4"),
                    ("mountpoint", mountpoint),
                ];
                family.sample(&labels, value.floor());
            }
        }
    }

    fn loadavg(&self, page: &mut Page) {
        let middle = f64::from(self.model.cpus) * self.model.busy;
        for name in ["node_load1", "node_load15", "node_load5"] {
            let value = self.model.gauge(name, middle, 0.3, self.elapsed);
            page.gauge(name, "Load average.", (value * 100.0).round() / 100.0);
        }
    }

    fn meminfo(&self, page: &mut Page) {
        for (name, share) in MEMORY {
            let swing = if matches!(name, "MemTotal" | "VmallocTotal" | "CommitLimit") {
                0.0
            } else {
                0.05
            };
            let value = self.model.memory * self.model.gauge(name, share, swing, self.elapsed);
            let name = format!("node_memory_{name}_bytes");
            page.gauge(
                &name,
                "A line of /proc/meminfo.",
                (value / 1024.0).floor() * 1024.0,
            );
        }
        for name in [
            "HugePages_Free",
            "HugePages_Rsvd",
            "HugePages_Surp",
            "HugePages_Total",
        ] {
            page.gauge(&format!("node_memory_{name}"), "A line of /proc/meminfo.", 0.0);
        }
    }

    fn netdev(&self, page: &mut Page) {
        for (direction, replaced) in [
            ("receive", ["frame", "multicast"]),
            ("transmit", ["colls", "carrier"]),
        ] {
            for (field, rate) in NETWORK {
                let field = match field {
                    "frame_or_colls" => replaced[0],
                    "multicast_or_carrier" => replaced[1],
                    other => other,
                };
                let name = format!("node_network_{direction}_{field}_total");
                let mut family = page.family(&name, "A column of /proc/net/dev.", Counter);
                for device in &self.model.nics {
                    let value = self.model.count(&format!("{name}{device}"), rate, self.elapsed);
                    family.sample(&[("device", device)], value);
                }
            }
        }
    }

    fn os(page: &mut Page) {
        let labels = [
            ("build_id", ""),
            ("id", "debian"),
            ("id_like", ""),
            ("image_id", ""),
            ("image_version", ""),
            ("name", "Debian GNU/Linux"),
            ("pretty_name", "Debian GNU/Linux 12 (bookworm)"),
            ("variant", ""),
            ("variant_id", ""),
            ("version", "12 (bookworm)"),
            ("version_codename", "bookworm"),
            ("version_id", "12"),
        ];
        page.family("node_os_info", "What /etc/os-release says.", Gauge)
            .sample(&labels, 1.0);
        page.family("node_os_version", "Major and minor version of the system.", Gauge)
            .sample(
                &[("id", "debian"), ("id_like", ""), ("name", "Debian GNU/Linux")],
                12.0,
            );
    }

    fn pressure(&self, page: &mut Page) {
        for (name, rate) in [
            ("cpu_waiting", 0.02),
            ("io_stalled", 0.005),
            ("io_waiting", 0.01),
            ("irq_stalled", 0.001),
            ("memory_stalled", 0.0),
            ("memory_waiting", 0.0),
        ] {
            let name = format!("node_pressure_{name}_seconds_total");
            page.counter(
                &name,
                "Seconds of pressure.",
                self.model.counter(&name, rate, self.elapsed),
            );
        }
    }

    fn scrape(&self, page: &mut Page) {
        let mut family = page.family(
            "node_scrape_collector_duration_seconds",
            "How long a collector took.",
            Gauge,
        );
        for name in COLLECTORS {
            family.sample(
                &[("collector", name)],
                self.model.gauge(name, 0.0004, 0.5, self.elapsed),
            );
        }
        let mut family = page.family(
            "node_scrape_collector_success",
            "Whether a collector succeeded.",
            Gauge,
        );
        for name in COLLECTORS {
            family.sample(&[("collector", name)], 1.0);
        }
    }

    fn stat(&self, page: &mut Page) {
        page.gauge(
            "node_boot_time_seconds",
            "When the guest booted, since 1970.",
            (self.now - self.elapsed - self.model.uptime).floor(),
        );
        for (name, rate) in [
            ("node_context_switches_total", 3_000.0),
            ("node_forks_total", 4.0),
            ("node_intr_total", 2_000.0),
        ] {
            page.counter(
                name,
                "Counter of /proc/stat.",
                self.model.count(name, rate, self.elapsed),
            );
        }
        page.gauge("node_procs_blocked", "Processes that wait for a disk.", 0.0);
        page.gauge(
            "node_procs_running",
            "Processes that could run.",
            self.model.gauge("running", 3.0, 0.9, self.elapsed).round(),
        );
    }

    fn time(&self, page: &mut Page) {
        page.gauge("node_time_seconds", "The guest's clock, since 1970.", self.now);
        page.family("node_time_zone_offset_seconds", "Offset from UTC.", Gauge)
            .sample(&[("time_zone", "UTC")], 0.0);
    }

    fn uname(&self, page: &mut Page) {
        let labels = [
            ("domainname", "(none)"),
            ("machine", "x86_64"),
            ("nodename", self.guest.name.as_str()),
            ("release", self.model.kernel.as_str()),
            ("sysname", "Linux"),
            ("version", "#1 SMP PREEMPT_DYNAMIC"),
        ];
        page.family("node_uname_info", "What uname(2) says.", Gauge)
            .sample(&labels, 1.0);
    }

    fn vmstat(&self, page: &mut Page) {
        for (name, rate) in [
            ("oom_kill", 0.0),
            ("pgfault", 9_000.0),
            ("pgmajfault", 0.2),
            ("pgpgin", 300.0),
            ("pgpgout", 900.0),
            ("pswpin", 0.0),
            ("pswpout", 0.0),
        ] {
            let name = format!("node_vmstat_{name}");
            page.family(&name, "A line of /proc/vmstat.", MetricType::Untyped)
                .sample(&[], self.model.count(&name, rate, self.elapsed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use virtfleet_wire::exposition::{Line, parse_line};

    use super::*;
    use crate::sim::{Options, Plan};

    #[test]
    fn every_guests_page_reads_back_without_repetition() {
        let plan = Plan::new(&Options::default()).unwrap();
        let mut pages = BTreeSet::new();
        for guest in &plan.guests {
            let mut page = Page::new();
            write_page(&mut page, guest, &Model::new(guest), 12.5, 1.8e9);
            assert!(
                (240..=420).contains(&page.samples()),
                "{} samples",
                page.samples()
            );
            let text = page.to_text();
            let mut series = BTreeSet::new();
            let mut families = BTreeSet::new();
            for line in text.lines() {
                match parse_line(line).unwrap() {
                    Line::Sample(sample) => {
                        let labels: Vec<_> = sample.labels.map(Result::unwrap).collect();
                        assert!(
                            series.insert(format!("{}{labels:?}", sample.name)),
                            "{line} stands twice"
                        );
                        assert!(sample.value.is_finite(), "{line}");
                    }
                    Line::Type(name, _) => assert!(families.insert(name.to_owned()), "{name} stands twice"),
                    _ => {}
                }
            }
            pages.insert(text);
        }
        assert_eq!(pages.len(), plan.guests.len(), "each guest has a page of its own");
    }
}
