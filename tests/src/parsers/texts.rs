//! Texts of `/proc` with random numbers.

use std::fmt::Write as _;

use fastrand::Rng;

/// Numbers, separated by blanks.
fn numbers(random: &mut Rng, count: usize) -> String {
    let each: Vec<String> = (0..count).map(|_| random.u64(0..1 << 48).to_string()).collect();
    each.join(" ")
}

/// Numbers below a million, separated by blanks.
fn small_numbers(random: &mut Rng, count: usize) -> String {
    let each: Vec<String> = (0..count).map(|_| random.u32(0..1_000_000).to_string()).collect();
    each.join(" ")
}

pub(super) fn stat(random: &mut Rng, size: usize) -> String {
    let mut text = format!("cpu  {}\n", numbers(random, 10));
    for cpu in 0..size {
        writeln!(text, "cpu{cpu} {}", numbers(random, 10)).ok();
    }
    let interrupts = numbers(random, 40);
    let (switches, forks) = (random.u64(..), random.u64(..));
    let (running, blocked) = (random.u32(..), random.u32(..));
    let softirqs = numbers(random, 11);
    format!(
        "{text}intr {interrupts}\nctxt {switches}\nbtime 1700000000\nprocesses {forks}\nprocs_running {running}\n\
         procs_blocked {blocked}\nsoftirq {softirqs}\n"
    )
}

pub(super) fn diskstats(random: &mut Rng, size: usize) -> String {
    let mut text = String::new();
    for disk in 0..size {
        let columns = random.choice([11, 15, 17]).unwrap_or(17);
        writeln!(text, " 253 {:7} vd{disk} {}", disk * 16, numbers(random, columns)).ok();
    }
    text
}

pub(super) fn loadavg(random: &mut Rng, _: usize) -> String {
    let mut load = || format!("{}.{:02}", random.u32(0..900), random.u32(0..100));
    format!("{} {} {} 3/512 4711\n", load(), load(), load())
}

/// The names that procfs-core requires, and some others.
const MEMINFO: &[&str] = &[
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "Buffers",
    "Cached",
    "SwapCached",
    "Active",
    "Inactive",
    "Active(anon)",
    "Inactive(anon)",
    "SwapTotal",
    "SwapFree",
    "Dirty",
    "Writeback",
    "AnonPages",
    "Mapped",
    "Shmem",
    "Slab",
    "SReclaimable",
    "SUnreclaim",
    "KernelStack",
    "PageTables",
    "NFS_Unstable",
    "Bounce",
    "WritebackTmp",
    "CommitLimit",
    "Committed_AS",
    "VmallocTotal",
    "VmallocUsed",
    "VmallocChunk",
    "Percpu",
];

pub(super) fn meminfo(random: &mut Rng, _: usize) -> String {
    let mut text = String::new();
    for name in MEMINFO {
        writeln!(text, "{name}: {:15} kB", random.u64(0..1 << 40)).ok();
    }
    text + "HugePages_Total:       3\n"
}

pub(super) fn vmstat(random: &mut Rng, size: usize) -> String {
    let mut text = String::new();
    for line in 0..size * 20 {
        writeln!(text, "nr_counter_{line} {}", random.u64(0..1 << 62)).ok();
    }
    text
}

pub(super) fn net_dev(random: &mut Rng, size: usize) -> String {
    let mut text = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop \
                    fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
        .to_owned();
    for device in 0..size {
        writeln!(text, "{:>6}: {}", format!("eth{device}"), numbers(random, 16)).ok();
    }
    text
}

pub(super) fn pressure(random: &mut Rng, _: usize) -> String {
    let mut line = |kind| {
        format!(
            "{kind} avg10=0.12 avg60=1.00 avg300=0.00 total={}\n",
            random.u64(..)
        )
    };
    line("some") + &line("full")
}

pub(super) fn mountinfo(random: &mut Rng, size: usize) -> String {
    let mut text = String::new();
    for mount in 0..size {
        let (id, minor) = (random.u32(0..1 << 30), random.u32(0..1 << 20));
        let options = random.choice(["rw,relatime", "ro,noatime"]).unwrap_or("rw");
        let shared = random
            .choice(["", "shared:7 ", "shared:7 master:2 "])
            .unwrap_or("");
        writeln!(
            text,
            "{id} 1 253:{minor} / /srv/a\\040b{mount} {options} {shared}- ext4 /dev/vd{mount} {options}"
        )
        .ok();
    }
    text
}

pub(super) fn task_stat(random: &mut Rng, _: usize) -> String {
    let state = random.choice(["R", "S", "D", "Z"]).unwrap_or("S");
    let threads = random.u32(1..10_000);
    let (head, tail) = (small_numbers(random, 15), small_numbers(random, 32));
    format!("4711 (a (b) c) {state} 1 {head} {threads} 0 {tail}\n")
}

pub(super) fn cgroups(random: &mut Rng, size: usize) -> String {
    let mut text = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n".to_owned();
    for line in 0..size {
        let (count, enabled) = (random.u32(..), random.u32(0..2));
        writeln!(text, "controller{line}\t{line}\t{count}\t{enabled}").ok();
    }
    text
}

pub(super) fn cpuinfo(random: &mut Rng, size: usize) -> String {
    let mut text = String::new();
    for cpu in 0..size {
        let (model, mhz) = (random.u32(0..200), random.u32(1000..5000));
        writeln!(
            text,
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: Intel(R) Xeon(R) \
             Processor\nstepping\t: 6\nmicrocode\t: 0x1\ncpu MHz\t\t: {mhz}.000\ncache size\t: 16384 KB\nphysical id\t: 0\n\
             core id\t\t: {cpu}\nflags\t\t: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat\nbugs\t\t: \
             spectre_v1 spectre_v2\n"
        )
        .ok();
    }
    text
}
