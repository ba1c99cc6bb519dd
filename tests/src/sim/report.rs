//! The report of a simulated guest.

use std::collections::BTreeMap;

use virtfleet_wire::{
    identity::{Claims, Identity, Interface, Sourced},
    ids::Uuid,
    report::{AgentInfo, Clock, GuestReport, REPORT_API_VERSION, REPORT_KIND, Section, SectionStatus},
};

use super::{model::Model, plan::Guest, rng::Random};

/// The report of `guest`, `elapsed` seconds after the simulation began, at `now` seconds since
/// 1970, with the sequence number `seq`.
pub fn guest_report(guest: &Guest, model: &Model, elapsed: f64, now: f64, seq: u64) -> GuestReport {
    let mut random = Random::new(guest.seed).split(1);
    let boot_id = Uuid::from_u128(random.uuid()).to_string();
    let machine_id = format!("{:032x}", random.uuid());
    let up = nanoseconds(model.uptime + elapsed);
    let address = format!("{}/8", guest.address.ip());
    let interface = Interface {
        name: "eth0".to_owned(),
        mac: guest.mac.parse().ok(),
        addresses: vec![address],
        physical: true,
    };
    let dmi = |name: &str| format!("/sys/class/dmi/id/{name}");
    GuestReport {
        api_version: REPORT_API_VERSION.to_owned(),
        kind: REPORT_KIND.to_owned(),
        agent: AgentInfo {
            version: "0.1.0-sim".to_owned(),
            features: vec!["metrics".to_owned(), "report".to_owned()],
        },
        boot_id,
        seq,
        clock: Clock {
            boottime_ns: up,
            monotonic_ns: up,
            realtime_ns: nanoseconds(now),
        },
        identity: Identity {
            smbios_uuid: Some(Sourced::new(guest.firmware.to_string(), "state:identity.json")),
            vendor: Some(Sourced::new("KubeVirt".to_owned(), dmi("sys_vendor"))),
            product: Some(Sourced::new("None".to_owned(), dmi("product_name"))),
            instance_id: Some(Sourced::new(
                guest.firmware.to_string(),
                "/run/cloud-init/instance-data.json",
            )),
            local_hostname: Some(Sourced::new(
                guest.name.clone(),
                "/run/cloud-init/instance-data.json",
            )),
            cloud_platform: Some(Sourced::new(
                "nocloud".to_owned(),
                "/run/cloud-init/instance-data.json",
            )),
            machine_id: Some(Sourced::new(machine_id, "/etc/machine-id")),
            hostname: Some(Sourced::new(guest.name.clone(), "uname")),
            interfaces: Some(Sourced::new(vec![interface], "/sys/class/net")),
            ..Identity::default()
        },
        claims: Claims {
            kubelet_node_name: Some(Sourced::new(guest.name.clone(), "/proc/1/cmdline")),
            provider_id: Some(Sourced::new(
                format!("kubevirt://{}", guest.name),
                "/proc/1/cmdline",
            )),
            ..Claims::default()
        },
        sections: sections(guest, model),
        findings: Vec::new(),
    }
}

fn sections(guest: &Guest, model: &Model) -> BTreeMap<String, Section> {
    let section = |items| Section {
        status: SectionStatus::Ok,
        items,
        ..Section::default()
    };
    let system = serde_json::json!({
        "osName": "Debian GNU/Linux 12 (bookworm)", "kernel": model.kernel, "architecture": "x86_64",
    });
    let disks = model
        .disks
        .iter()
        .map(|name| serde_json::json!({ "name": name }))
        .collect();
    let nic = serde_json::json!({ "name": "eth0", "mac": guest.mac });
    BTreeMap::from([
        ("system".to_owned(), section(vec![system])),
        (
            "cpu".to_owned(),
            section(vec![serde_json::json!({ "online": model.cpus })]),
        ),
        ("disks".to_owned(), section(disks)),
        ("nics".to_owned(), section(vec![nic])),
        ("storage".to_owned(), section(Vec::new())),
        (
            "dns".to_owned(),
            section(vec![serde_json::json!({ "state": "verified" })]),
        ),
        ("virtio".to_owned(), section(Vec::new())),
    ])
}

fn nanoseconds(seconds: f64) -> u64 {
    u64::try_from(std::time::Duration::from_secs_f64(seconds.max(0.0)).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Options, Plan};

    #[test]
    fn a_collector_reads_it() {
        let plan = Plan::new(&Options::default()).unwrap();
        let guest = &plan.guests[3];
        let report = guest_report(guest, &Model::new(guest), 5.0, 1.8e9, 1);
        let json = report.clone().to_json_within_limit().unwrap();
        let back = GuestReport::from_json(&json).unwrap();
        assert_eq!(back, report);
        assert_eq!(
            back.identity.smbios_uuid.unwrap().value,
            guest.firmware.to_string()
        );
    }
}
