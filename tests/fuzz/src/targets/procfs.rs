//! Texts of procfs, sysfs and udev. Each group of parsers reads the same input: one corpus serves
//! them all.

use virtfleet_agent_core::{
    disks::size,
    guest::{remounts, steal},
    procfs::{
        buddyinfo, cgroups, cpuinfo, cpulist, diskstats, hwmon, interrupts, ipvs, kstat, loadavg, mdstat,
        meminfo, mountinfo, mountstats, net_dev, os_release, pairs, per_cpu, pressure, rpc, schedstat,
        single, slabinfo, snmp, sockets, sockstat, softnet, stat, swaps, task_stat, udev, vulnerability, xfs,
        zoneinfo,
    },
};

use super::input::{drain, text};

/// CPUs, time, pressure, sensors.
pub(super) fn cpu(bytes: &[u8]) {
    let text = text(bytes);
    let text = text.as_str();
    if let Ok(cpus) = cpulist::cpus(text) {
        assert!(cpus.is_sorted_by(|a, b| a < b), "sorted, and each once");
        assert!(cpus.last().is_none_or(|last| *last <= 65_535));
        let again: Vec<String> = cpus.iter().map(u32::to_string).collect();
        assert_eq!(
            cpulist::cpus(&again.join(",")),
            Ok(cpus),
            "as single CPUs it is the same"
        );
    }
    assert!(cpuinfo::cpus(text).len() <= text.len());
    if let Ok(table) = interrupts::table(text) {
        let cpus = table.cpus.len();
        let each = |interrupt: interrupts::Interrupt<'_>, counts: &[u64]| {
            assert_eq!(counts.len(), cpus, "a count for each CPU");
            assert!(interrupt.handlers().len() <= interrupt.chip().1.len());
            interrupt.is_numbered();
        };
        table.rows(&mut Vec::new(), drop, each);
    }
    for (_, times) in stat::cpus(text).flatten() {
        assert_eq!(stat::CpuTimes::from_columns(times.columns()), times);
    }
    stat::counters(text, drop);
    stat::softirqs(text).ok();
    if let Some(sums) = steal::sums(text) {
        let share = steal::Steal::default().share(sums);
        assert!((0.0..=1.0).contains(&share));
    }
    drain(schedstat::cpus(text));
    drain(softnet::cpus(text));
    drain(per_cpu::rows(text));
    assert!(per_cpu::names(text).count() <= text.len() + 1);
    drain(cgroups::controllers(text));
    loadavg::loads(text).ok();
    pressure::pressure(text, drop);
    assert!(vulnerability::state(text).1.len() <= text.len());
    if let Some(attribute) = hwmon::attribute(text.trim()) {
        hwmon::family(&attribute, true);
        hwmon::family(&attribute, false);
    }
    let clean = hwmon::clean(text);
    assert_eq!(hwmon::clean(&clean), clean, "what is clean stays so");
}

/// Disks, filesystems, and what the machine says of itself.
pub(super) fn disk(bytes: &[u8]) {
    let mounts: Vec<_> = mountinfo::mounts(bytes).flatten().collect();
    for mount in &mounts {
        assert!(mount.mount_point.starts_with(b"/"));
    }
    remounts::Remounts::default().look(&mounts);
    let text = text(bytes);
    let text = text.as_str();
    drain(diskstats::disks(text));
    for array in mdstat::arrays(text).flatten() {
        assert!(!array.name.is_empty());
    }
    assert!(mountstats::nfs_mounts(text, drop).len() <= text.len());
    drain(swaps::swaps(text));
    drain(xfs::groups(text));
    drain(kstat::named(text));
    drain(kstat::pool_io(text));
    drain(rpc::lines(text, rpc::SERVER_RPC));
    udev::properties(text).count();
    os_release::assignments(text).count();
    os_release::version(text);
    os_release::support_end(text);
    if let Some(bytes) = size::parse(text) {
        assert_eq!(
            size::parse(&bytes.to_string()),
            Some(bytes),
            "as bytes it is the same size"
        );
    }
}

/// Memory, and files of one number.
pub(super) fn memory(bytes: &[u8]) {
    task_stat::task_stat(bytes).ok();
    let text = text(bytes);
    let text = text.as_str();
    drain(buddyinfo::blocks(text));
    drain(meminfo::fields(text));
    drain(slabinfo::slabs(text));
    drain(pairs::pairs(text));
    for line in zoneinfo::lines(text).flatten() {
        line.value().ok();
        drain(line.values());
    }
    if let Ok(number) = single::unsigned(text) {
        assert_eq!(single::unsigned(&format!("{number}\n")), Ok(number));
    }
    if let Ok(number) = single::signed(text) {
        assert_eq!(single::signed(&format!("{number}\n")), Ok(number));
    }
}

/// Network.
pub(super) fn net(bytes: &[u8]) {
    let text = text(bytes);
    let text = text.as_str();
    drain(net_dev::devices(text));
    for table in snmp::tables(text).flatten().chain(snmp::lines6(text)) {
        table.fields().count();
        drain(table.numbers());
    }
    sockets::queues(text).ok();
    for protocol in sockstat::protocols(text).flatten() {
        drain(protocol.pairs());
    }
    ipvs::totals(text).ok();
    drain(ipvs::backends(text));
}
