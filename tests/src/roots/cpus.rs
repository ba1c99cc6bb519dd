//! Files whose size depends on the number of CPUs.
#![expect(
    clippy::format_push_string,
    clippy::format_collect,
    reason = "written once, and easier to read so"
)]

use std::path::Path;

use anyhow::Result;

use super::files::{attributes, put};

/// Number of device lines in `/proc/interrupts`, as in a guest with virtio; each CPU has a column.
const DEVICE_INTERRUPTS: usize = 24;
const NAMED_INTERRUPTS: [(&str, &str); 6] = [
    ("NMI", "Non-maskable interrupts"),
    ("LOC", "Local timer interrupts"),
    ("RES", "Rescheduling interrupts"),
    ("CAL", "Function call interrupts"),
    ("TLB", "TLB shootdowns"),
    ("MCP", "Machine check polls"),
];
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

pub(super) fn write(dir: &Path, count: usize) -> Result<()> {
    put(dir, "proc/stat", stat(count))?;
    put(dir, "proc/cpuinfo", cpuinfo(count))?;
    put(dir, "proc/interrupts", interrupts(count))?;
    put(dir, "proc/softirqs", softirqs(count))?;
    put(dir, "proc/schedstat", schedstat(count))?;
    put(dir, "proc/net/softnet_stat", softnet(count))?;
    let all = format!("0-{}", count.saturating_sub(1));
    attributes(
        dir,
        "sys/devices/system/cpu",
        &[
            ("online", &all),
            ("present", &all),
            ("possible", &all),
            ("offline", ""),
            ("isolated", ""),
        ],
    )?;
    for cpu in 0..count {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        let (core, package) = ((cpu % 32).to_string(), (cpu / 32).to_string());
        attributes(dir, &folder, &[("online", "1")])?;
        attributes(
            dir,
            &format!("{folder}/topology"),
            &[("core_id", &core), ("physical_package_id", &package)],
        )?;
        attributes(
            dir,
            &format!("{folder}/thermal_throttle"),
            &[("core_throttle_count", "3"), ("package_throttle_count", "5")],
        )?;
    }
    Ok(())
}

fn stat(count: usize) -> String {
    let line = |name: &str, by: usize| {
        format!(
            "{name} {} {} {} {} {} 0 {} {} 30 4\n",
            304_592 * by,
            600 * by,
            151_845 * by,
            24_364_467 * by,
            4413 * by,
            6080 * by,
            2963 * by
        )
    };
    let mut text = line("cpu ", count);
    for cpu in 0..count {
        text += &line(&format!("cpu{cpu}"), 1);
    }
    let interrupts = " 7".repeat(DEVICE_INTERRUPTS + count * 2);
    text + &format!(
        "intr 48123456{interrupts}\nctxt 91234567\nbtime 1751270400\nprocesses 431201\nprocs_running 3\nprocs_blocked 1\n\
         softirq 31234567 1 8123456 12 5123456 812345 0 44123 9123456 0 8012345\n"
    )
}

fn cpuinfo(count: usize) -> String {
    let mut text = String::new();
    for cpu in 0..count {
        let siblings = count.min(32);
        text += &format!(
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel Xeon \
             Processor (SapphireRapids)\nstepping\t: 4\nmicrocode\t: 0x1\ncpu MHz\t\t: 2100.000\ncache size\t: 16384 \
             KB\nphysical id\t: {}\nsiblings\t: {siblings}\ncore id\t\t: {}\ncpu cores\t: {siblings}\napicid\t\t: \
             {cpu}\ninitial apicid\t: {cpu}\nfpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: 31\nwp\t\t: \
             yes\nflags\t\t: fpu vme de pse tsc msr pae aes avx avx2\nbugs\t\t: spectre_v1 spectre_v2\nbogomips\t: \
             4200.00\nclflush size\t: 64\ncache_alignment\t: 64\naddress sizes\t: 46 bits physical, 57 bits \
             virtual\npower management:\n\n",
            cpu / 32,
            cpu % 32,
        );
    }
    text
}

/// Header of tables with a column for each CPU.
fn head(count: usize) -> String {
    let columns: String = (0..count)
        .map(|cpu| format!("{:>11}", format!("CPU{cpu}")))
        .collect();
    format!("    {columns}\n")
}

fn row(name: &str, first: usize, count: usize) -> String {
    let cells: String = (0..count)
        .map(|cpu| format!(" {:>10}", first * 1000 + cpu))
        .collect();
    format!("{name:>4}:{cells}")
}

fn interrupts(count: usize) -> String {
    let mut text = head(count);
    for line in 0..DEVICE_INTERRUPTS {
        let name = format!(
            "PCI-MSIX-0000:0{}:00.0  {line}-edge      virtio{}-req.{}",
            line / 8,
            line / 8,
            line % 8
        );
        text += &format!("{}  {name}\n", row(&(line + 24).to_string(), line, count));
    }
    for (at, (name, about)) in NAMED_INTERRUPTS.iter().enumerate() {
        text += &format!("{}   {about}\n", row(name, at, count));
    }
    text + " ERR:          0\n MIS:          0\n"
}

fn softirqs(count: usize) -> String {
    let rows = SOFTIRQS.iter().enumerate();
    let rows: String = rows.map(|(at, name)| row(name, at, count) + "\n").collect();
    head(count) + &rows
}

fn schedstat(count: usize) -> String {
    let mut text = "version 16\ntimestamp 4300000000\n".to_owned();
    for cpu in 0..count {
        text += &format!(
            "cpu{cpu} 0 0 9012345 4012345 5012345 2012345 {} {} 4512345\n",
            812_345_678_901_usize + cpu,
            71_234_567_890_usize + cpu
        );
        text += "domain0 MC ffffffff 12 11 1 0 0 0 0 11 2 2 0 0 0 0 0 2 3 3 0 0 0 0 0 3 0 0 0 0 0 0 0 0 0 5 0 0\n";
    }
    text
}

fn softnet(count: usize) -> String {
    (0..count)
        .map(|cpu| {
            let zeros = "00000000 ".repeat(6);
            format!(
                "{:08x} 00000000 00000003 {zeros}00000000 00000000 00000000 {cpu:08x} 00000000 00000000\n",
                81_234 + cpu
            )
        })
        .collect()
}
