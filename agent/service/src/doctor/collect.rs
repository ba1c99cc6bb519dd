//! Collects the input of the doctor's checks: reads files, tries ports, runs each collector once.

use std::{net::SocketAddr, path::Path};

use virtfleet_agent_core::disks::duplicates;
use virtfleet_agent_host::{
    Roots, clock, exists, identified, is_root, list, listener_owners, read_bounded, read_text, references,
    try_port,
};
use virtfleet_agent_state::{
    DISKS_STATE, DNS_STATE, GUEST_RECORD, WAY_RECORD,
    identity::{observe, state::IDENTITY_STATE},
    settings::LoadedSettings,
};
use virtfleet_wire::settings::ServerTls;

use super::{CollectorRun, ListenerSeen, PemFile, Seen, StateSeen, Validity};
use crate::enrolment::stored_status;

/// Maximum size of a PEM file, in bytes.
const MAX_PEM: usize = 1 << 20;
/// The agent's name in the kernel (at most 15 characters).
const COMM: &str = "virtfleet-agent";

/// Services that must not start before provisioning.
const WAITING: [&str; 2] = ["kubelet.service", "containerd.service"];
/// The drop-in that makes them wait.
const DROP_IN: &str = "10-virtfleet.conf";
/// Directories in which systemd looks for units (systemd.unit(5)).
const UNIT_DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Parses a PEM file's content. Returns the validity of its certificates (the narrowest), none for
/// a private key, or the error. The first argument is the key in the settings: `certificate`, `key`
/// or `clientCA`.
pub type Inspect<'a> = dyn Fn(&str, &[u8]) -> Result<Option<Validity>, String> + 'a;

/// Loads the TLS files of the settings together, as `run` would. The error says why they do not
/// match.
pub type Agree<'a> = dyn Fn(&ServerTls) -> Result<(), String> + 'a;

/// Collects everything. `inspect` parses PEM, `agree` loads the TLS files together, `collectors`
/// runs each enabled collector once.
pub fn collect(
    roots: &Roots,
    settings: LoadedSettings,
    inspect: &Inspect<'_>,
    agree: &Agree<'_>,
    collectors: impl FnOnce() -> Vec<CollectorRun>,
) -> Seen {
    let observed = observe(roots);
    let clock = clock();
    let state = IDENTITY_STATE
        .read_any_boot(roots)
        .map_err(|error| error.to_string())
        .map(|state| StateSeen {
            age_ms: state.age_ms(&clock, &observed.boot_id),
            this_boot: state.boot_id == observed.boot_id,
        });
    let tls = &settings.config.server.tls;
    let pem: Vec<PemFile> = [
        ("certificate", &tls.certificate),
        ("key", &tls.key),
        ("clientCA", &tls.client_ca),
    ]
    .into_iter()
    .filter_map(|(key, path)| {
        let path = path.clone().filter(|path| !path.is_empty())?;
        let content = read_bounded(Path::new(&path), MAX_PEM)
            .map_err(|error| error.to_string())
            .and_then(|bytes| inspect(key, &bytes));
        Some(PemFile { key, path, content })
    })
    .collect();
    let each_good = pem.len() == 3 && pem.iter().all(|file| file.content.is_ok());
    let together = each_good.then(|| agree(tls).err()).flatten();
    let listeners = settings.config.server.listeners.iter().filter_map(|listener| {
        let address: SocketAddr = listener.address.parse().ok()?;
        Some(ListenerSeen {
            name: listener.name.clone(),
            address: listener.address.clone(),
            port: try_port(address),
            held_by_root: listener_owners(roots, address.port()).contains(&0),
        })
    });
    let client_ca = tls.client_ca.as_deref().unwrap_or_default();
    let now = clock.realtime_ns / 1_000_000_000;
    let enrolment = tls.enrolment.then(|| stored_status(roots, client_ca, now));
    let agent_pid = running_agent(roots);
    let way = agent_pid.map(|_| {
        // `/run` is empty after a boot. The agent may see another boot id: in its sandbox the file
        // over which systemd-nspawn mounts one is visible.
        let record = WAY_RECORD.read_any_boot(roots);
        record.map_err(|error| format!("{WAY_RECORD}: {error}"))
    });
    let readable = |flag, path: &Path| {
        let readable = list(path).map(|_| ()).map_err(|error| error.to_string());
        (flag, path.display().to_string(), readable)
    };
    Seen {
        pem,
        tls: together,
        enrolment,
        listeners: listeners.collect(),
        agent_pid,
        way,
        roots: vec![
            readable("--path.rootfs", &roots.rootfs),
            readable("--path.procfs", &roots.procfs),
            readable("--path.sysfs", &roots.sysfs),
            readable("--path.udev.data", &roots.udev_data),
        ],
        vendor: observed.identity.vendor.map(|vendor| vendor.value),
        missing: observed.identity.missing,
        passes: GUEST_RECORD
            .read(roots, &observed.boot_id)
            .map_err(|error| format!("{GUEST_RECORD}: {error}")),
        duplicates: duplicates::findings(&identified(roots), &references(roots)),
        disks: DISKS_STATE
            .read(roots, &observed.boot_id)
            .map_err(|error| format!("{DISKS_STATE}: {error}")),
        dns: DNS_STATE
            .read(roots, &observed.boot_id)
            .map_err(|error| format!("{DNS_STATE}: {error}")),
        virtio: virtfleet_agent_state::virtio::inspect(
            roots,
            &observed.boot_id,
            &settings.config.nic,
            is_root(),
        ),
        drop_ins: drop_ins(roots),
        boot_id: observed.boot_id,
        state,
        clock,
        collectors: collectors(),
        settings,
    }
}

fn drop_ins(roots: &Roots) -> Vec<(&'static str, bool)> {
    let there = |file: &str| {
        let mut directories = UNIT_DIRECTORIES.iter();
        directories.any(|directory| exists(&roots.root(format!("{directory}/{file}"))))
    };
    let installed = WAITING.into_iter().filter(|unit| there(unit));
    installed
        .map(|unit| (unit, there(&format!("{unit}.d/{DROP_IN}"))))
        .collect()
}

fn running_agent(roots: &Roots) -> Option<u32> {
    let own = std::process::id();
    let names = list(&roots.procfs).unwrap_or_default();
    let mut pids = names.iter().filter_map(|name| name.parse().ok());
    pids.find(|pid| {
        *pid != own
            && read_text(&roots.proc(format!("{pid}/comm")), 64).is_ok_and(|comm| comm.trim_end() == COMM)
    })
}
