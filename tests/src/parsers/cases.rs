//! Files of `/proc`, each with the values that both parsers read from it.

use std::hint::black_box;

use procfs_core as procfs;
use procfs_core::{FromBufRead as _, FromBufReadSI as _, FromRead as _, SystemInfo};
use virtfleet_agent_core::procfs as agent;

use super::{Case, texts};

/// System information that procfs-core's parser of `/proc/stat` requires and does not use for
/// counters.
fn system() -> impl procfs::SystemInfoInterface {
    procfs::ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 100,
        page_size: 4096,
        is_little_endian: true,
    }
}

macro_rules! ours {
    ($text:ident => $parse:expr) => {
        |$text| {
            black_box(&$parse);
        }
    };
}

/// All files for which both have a parser.
pub const CASES: &[Case] = &[
    Case {
        file: "/proc/stat",
        text: texts::stat,
        ours: |text| {
            let counters = agent::stat::counters(text, drop);
            let mut facts = vec![format!(
                "{:?} {:?} {:?}",
                counters.context_switches.unwrap(),
                counters.forks.unwrap(),
                counters.running.unwrap()
            )];
            let times = agent::stat::cpus(text).flatten();
            facts.extend(times.map(|(_, times)| format!("{:?}", &times.columns()[..8])));
            facts
        },
        procfs: |text| {
            let info = system();
            let info: &SystemInfo = &info;
            let stat = procfs::KernelStats::from_buf_read(text.as_bytes(), info).unwrap();
            let mut facts = vec![format!(
                "{} {} {}",
                stat.ctxt,
                stat.processes,
                stat.procs_running.unwrap()
            )];
            facts.extend(stat.cpu_time.iter().map(|cpu| {
                let times = [
                    Some(cpu.user),
                    Some(cpu.nice),
                    Some(cpu.system),
                    Some(cpu.idle),
                    cpu.iowait,
                    cpu.irq,
                    cpu.softirq,
                    cpu.steal,
                ];
                format!("{:?}", times.map(Option::unwrap))
            }));
            facts
        },
        parse_ours: ours!(text => (agent::stat::cpus(text).for_each(|cpu| { black_box(&cpu); }), agent::stat::counters(text, drop))),
        parse_procfs: |text| {
            let info = system();
            let info: &SystemInfo = &info;
            black_box(procfs::KernelStats::from_buf_read(text.as_bytes(), info).unwrap());
        },
    },
    Case {
        file: "/proc/diskstats",
        text: texts::diskstats,
        ours: |text| {
            agent::diskstats::disks(text)
                .flatten()
                .map(|disk| {
                    format!(
                        "{} {} {} {:?}",
                        disk.major,
                        disk.minor,
                        disk.name,
                        &disk.values[..11]
                    )
                })
                .collect()
        },
        procfs: |text| {
            let disks = procfs::DiskStats::from_buf_read(text.as_bytes()).unwrap();
            let fact = |disk: &procfs::DiskStat| {
                let values = [
                    disk.reads,
                    disk.merged,
                    disk.sectors_read,
                    disk.time_reading,
                    disk.writes,
                    disk.writes_merged,
                    disk.sectors_written,
                    disk.time_writing,
                    disk.in_progress,
                    disk.time_in_progress,
                    disk.weighted_time_in_progress,
                ];
                format!("{} {} {} {values:?}", disk.major, disk.minor, disk.name)
            };
            disks.0.iter().map(fact).collect()
        },
        parse_ours: ours!(text => agent::diskstats::disks(text).for_each(|disk| { black_box(&disk); })),
        parse_procfs: |text| {
            black_box(procfs::DiskStats::from_buf_read(text.as_bytes()).unwrap());
        },
    },
    Case {
        file: "/proc/loadavg",
        text: texts::loadavg,
        ours: |text| {
            let loads = agent::loadavg::loads(text).unwrap();
            loads.iter().map(|load| format!("{load:.2}")).collect()
        },
        procfs: |text| {
            let loads = procfs::LoadAverage::from_read(text.as_bytes()).unwrap();
            let each = [loads.one, loads.five, loads.fifteen];
            each.iter().map(|load| format!("{load:.2}")).collect()
        },
        parse_ours: ours!(text => agent::loadavg::loads(text)),
        parse_procfs: |text| {
            black_box(procfs::LoadAverage::from_read(text.as_bytes()).unwrap());
        },
    },
    Case {
        file: "/proc/meminfo",
        text: texts::meminfo,
        ours: |text| {
            let of = |name: &str| {
                let field = agent::meminfo::fields(text)
                    .flatten()
                    .find(|one| one.name == name);
                field.unwrap().value.to_string()
            };
            [
                "MemTotal",
                "MemAvailable",
                "Active(anon)",
                "SwapFree",
                "HugePages_Total",
            ]
            .map(of)
            .into()
        },
        procfs: |text| {
            let memory = procfs::Meminfo::from_buf_read(text.as_bytes()).unwrap();
            [
                Some(memory.mem_total),
                memory.mem_available,
                memory.active_anon,
                Some(memory.swap_free),
                memory.hugepages_total,
            ]
            .map(|value| value.unwrap().to_string())
            .into()
        },
        parse_ours: ours!(text => agent::meminfo::fields(text).for_each(|field| { black_box(&field); })),
        parse_procfs: |text| {
            black_box(procfs::Meminfo::from_buf_read(text.as_bytes()).unwrap());
        },
    },
    Case {
        file: "/proc/vmstat",
        text: texts::vmstat,
        ours: |text| {
            let mut facts: Vec<String> = agent::pairs::pairs(text)
                .flatten()
                .map(|pair| format!("{pair:?}"))
                .collect();
            facts.sort();
            facts
        },
        procfs: |text| {
            let counters = procfs::VmStat::from_buf_read(text.as_bytes()).unwrap();
            let mut facts: Vec<String> = counters.0.iter().map(|pair| format!("{pair:?}")).collect();
            facts.sort();
            facts
        },
        parse_ours: ours!(text => agent::pairs::pairs(text).for_each(|pair| { black_box(&pair); })),
        parse_procfs: |text| {
            black_box(procfs::VmStat::from_buf_read(text.as_bytes()).unwrap());
        },
    },
    Case {
        file: "/proc/net/dev",
        text: texts::net_dev,
        ours: |text| {
            let mut facts: Vec<String> = agent::net_dev::devices(text)
                .flatten()
                .map(|device| format!("{} {:?}", device.name, device.values))
                .collect();
            facts.sort();
            facts
        },
        procfs: |text| {
            let devices = procfs::net::InterfaceDeviceStatus::from_buf_read(text.as_bytes()).unwrap();
            let fact = |one: &procfs::net::DeviceStatus| {
                let values = [
                    one.recv_bytes,
                    one.recv_packets,
                    one.recv_errs,
                    one.recv_drop,
                    one.recv_fifo,
                    one.recv_frame,
                    one.recv_compressed,
                    one.recv_multicast,
                    one.sent_bytes,
                    one.sent_packets,
                    one.sent_errs,
                    one.sent_drop,
                    one.sent_fifo,
                    one.sent_colls,
                    one.sent_carrier,
                    one.sent_compressed,
                ];
                format!("{} {values:?}", one.name)
            };
            let mut facts: Vec<String> = devices.0.values().map(fact).collect();
            facts.sort();
            facts
        },
        parse_ours: ours!(text => agent::net_dev::devices(text).for_each(|device| { black_box(&device); })),
        parse_procfs: |text| {
            black_box(procfs::net::InterfaceDeviceStatus::from_buf_read(text.as_bytes()).unwrap());
        },
    },
    Case {
        file: "/proc/pressure/memory",
        text: texts::pressure,
        ours: |text| {
            let pressure = agent::pressure::pressure(text, drop);
            vec![format!(
                "{:?} {:?}",
                pressure.some_us.unwrap(),
                pressure.full_us.unwrap()
            )]
        },
        procfs: |text| {
            let pressure = procfs::MemoryPressure::from_buf_read(text.as_bytes()).unwrap();
            vec![format!("{} {}", pressure.some.total, pressure.full.total)]
        },
        parse_ours: ours!(text => agent::pressure::pressure(text, drop)),
        parse_procfs: |text| {
            black_box(procfs::MemoryPressure::from_buf_read(text.as_bytes()).unwrap());
        },
    },
    Case {
        file: "/proc/self/mountinfo",
        text: texts::mountinfo,
        ours: |text| {
            agent::mountinfo::mounts(text.as_bytes())
                .flatten()
                .map(|mount| {
                    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    format!(
                        "{} {}:{} {} {} {}",
                        mount.id,
                        mount.major,
                        mount.minor,
                        // procfs-core does not decode the kernel's octal escapes.
                        lossy(&mount.mount_point).replace(' ', "\\040"),
                        lossy(mount.fs_type),
                        lossy(mount.source)
                    )
                })
                .collect()
        },
        procfs: |text| {
            let mounts = procfs::process::MountInfos::from_buf_read(text.as_bytes()).unwrap();
            let fact = |mount: &procfs::process::MountInfo| {
                format!(
                    "{} {} {} {} {}",
                    mount.mnt_id,
                    mount.majmin,
                    mount.mount_point.display(),
                    mount.fs_type,
                    mount.mount_source.as_deref().unwrap()
                )
            };
            mounts.0.iter().map(fact).collect()
        },
        parse_ours: ours!(text => agent::mountinfo::mounts(text.as_bytes()).for_each(|mount| { black_box(&mount); })),
        parse_procfs: |text| {
            black_box(procfs::process::MountInfos::from_buf_read(text.as_bytes()).unwrap());
        },
    },
    Case {
        file: "/proc/PID/stat",
        text: texts::task_stat,
        ours: |text| {
            let task = agent::task_stat::task_stat(text.as_bytes()).unwrap();
            vec![format!("{} {}", char::from(task.state), task.threads)]
        },
        procfs: |text| {
            let task = procfs::process::Stat::from_read(text.as_bytes()).unwrap();
            vec![format!("{} {}", task.state, task.num_threads)]
        },
        parse_ours: ours!(text => agent::task_stat::task_stat(text.as_bytes())),
        parse_procfs: |text| {
            black_box(procfs::process::Stat::from_read(text.as_bytes()).unwrap());
        },
    },
    Case {
        file: "/proc/cgroups",
        text: texts::cgroups,
        ours: |text| {
            agent::cgroups::controllers(text)
                .flatten()
                .map(|one| format!("{} {} {}", one.name, one.cgroups, one.enabled))
                .collect()
        },
        procfs: |text| {
            let controllers = procfs::CGroupControllers::from_buf_read(text.as_bytes()).unwrap();
            let fact = |one: &procfs::CGroupController| {
                format!("{} {} {}", one.name, one.num_cgroups, u8::from(one.enabled))
            };
            controllers.0.iter().map(fact).collect()
        },
        parse_ours: ours!(text => agent::cgroups::controllers(text).for_each(|one| { black_box(&one); })),
        parse_procfs: |text| {
            black_box(procfs::CGroupControllers::from_buf_read(text.as_bytes()).unwrap());
        },
    },
    Case {
        file: "/proc/cpuinfo",
        text: texts::cpuinfo,
        ours: |text| {
            let cpus = agent::cpuinfo::cpus(text);
            let fact = |cpu: &agent::cpuinfo::CpuInfo<'_>| {
                format!("{} {} {} {}", cpu.vendor, cpu.model, cpu.model_name, cpu.core)
            };
            cpus.iter().flatten().map(fact).collect()
        },
        procfs: |text| {
            let info = procfs::CpuInfo::from_buf_read(text.as_bytes()).unwrap();
            let of = |cpu, name| info.get_field(cpu, name).unwrap();
            (0..info.num_cores())
                .map(|cpu| {
                    format!(
                        "{} {} {} {}",
                        of(cpu, "vendor_id"),
                        of(cpu, "model"),
                        of(cpu, "model name"),
                        of(cpu, "core id")
                    )
                })
                .collect()
        },
        parse_ours: ours!(text => agent::cpuinfo::cpus(text)),
        parse_procfs: |text| {
            black_box(procfs::CpuInfo::from_buf_read(text.as_bytes()).unwrap());
        },
    },
];
