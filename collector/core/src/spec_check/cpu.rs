//! vCPUs, their topology, model and features.

use super::{
    check::{NOT_REPORTED, SpecCheck},
    value::{SpecPath, SpecValue},
};
use crate::{
    facts::Vmi,
    guest_hardware::GuestHardware,
    health::HealthCause,
    reported::ReportedStatus,
    vmi_spec::{CpuFeatureSpec, CpuSpec, CpuTopology},
};

/// Names of CPU models that QEMU shows for its generic models. A passed-through CPU has another.
const GENERIC_MODELS: [&str; 2] = ["QEMU Virtual CPU", "Common KVM processor"];
/// Models of libvirt whose names QEMU repeats in the model name, without their suffixes.
const NAMED_MODELS: [&str; 16] = [
    "Nehalem",
    "SandyBridge",
    "IvyBridge",
    "Haswell",
    "Broadwell",
    "Skylake",
    "Cascadelake",
    "Cooperlake",
    "Icelake",
    "SapphireRapids",
    "GraniteRapids",
    "Denverton",
    "Snowridge",
    "EPYC-Rome",
    "EPYC-Milan",
    "EPYC-Genoa",
];

pub(super) fn checks<'a>(
    vmi: &Vmi,
    spec: &'a CpuSpec,
    guest: &'a GuestHardware,
    all: &mut Vec<SpecCheck<'a>>,
) {
    let is_changing = vmi
        .conditions
        .with_status("HotVCPUChange", ReportedStatus::True)
        .is_some();
    match spec.topology {
        Some((topology, field)) => {
            all.push(vcpus(topology, field, spec, guest, is_changing));
            all.push(shape(topology, field, guest));
        }
        None => all.push(
            SpecCheck::not_seen(
                SpecPath::Field("spec.domain.cpu"),
                SpecValue::Text("-"),
                "the VMI does not say how many vCPUs it has",
            )
            .required(),
        ),
    }
    all.extend(spec.model.as_deref().map(|asked| model(asked, guest)));
    all.extend(spec.features.iter().filter_map(|asked| feature(asked, guest)));
}

fn vcpus<'a>(
    topology: CpuTopology,
    field: &'static str,
    spec: &CpuSpec,
    guest: &GuestHardware,
    is_changing: bool,
) -> SpecCheck<'a> {
    let (path, asked) = (SpecPath::Field(field), topology.vcpus());
    let value = |count: u32| SpecValue::Number(count.into());
    let Some(seen) = guest.cpus_online else {
        return SpecCheck::not_seen(path, value(asked), NOT_REPORTED).required();
    };
    if is_changing {
        let why = "KubeVirt adds or removes vCPUs at present (condition HotVCPUChange)";
        return SpecCheck::not_seen(path, value(asked), why).required();
    }
    let has_offline = guest.cpus_present.is_some_and(|present| present >= asked);
    let is_plugged = spec.current_vcpus == Some(asked);
    let (cause, why) = match () {
        () if seen > asked => (
            HealthCause::Vm,
            "the VM has more vCPUs than it asks for, until it is restarted",
        ),
        () if has_offline => (
            HealthCause::Guest,
            "the others are there and offline: echo 1 > /sys/devices/system/cpu/cpuN/online brings one online",
        ),
        () if is_plugged => (
            HealthCause::Guest,
            "KubeVirt has plugged them in (status.currentCPUTopology), and the guest does not use them",
        ),
        () => (
            HealthCause::Vm,
            "the guest has less computing power than the VM was given",
        ),
    };
    let check = SpecCheck::new(path, value(asked), value(seen), seen == asked, why).required();
    if seen < asked {
        check.matters(cause, "FewerVcpus")
    } else {
        check
    }
}

/// Compared only if the number of vCPUs is equal: an offline vCPU changes the topology.
fn shape<'a>(asked: CpuTopology, field: &'static str, guest: &GuestHardware) -> SpecCheck<'a> {
    let path = match field {
        "spec.domain.cpu" => SpecPath::Field("spec.domain.cpu.{sockets,cores,threads}"),
        other => SpecPath::Field(other),
    };
    let seen = guest.topology.filter(|seen| seen.vcpus() == asked.vcpus());
    SpecCheck::compare(
        path,
        SpecValue::Topology(asked),
        seen.map(SpecValue::Topology),
        |seen| seen == SpecValue::Topology(asked),
        "schedulers and licences count sockets and cores",
    )
}

/// Letters and digits in lower case.
fn plain(text: &str) -> impl Iterator<Item = char> + Clone + '_ {
    let kept = text.chars().filter(char::is_ascii_alphanumeric);
    kept.map(|c| c.to_ascii_lowercase())
}

fn has_name(text: &str, name: &str) -> bool {
    let text: String = plain(text).collect();
    let name: String = plain(name).collect();
    text.contains(&name)
}

fn model<'a>(asked: &'a str, guest: &'a GuestHardware) -> SpecCheck<'a> {
    let (path, value) = (SpecPath::Field("spec.domain.cpu.model"), SpecValue::Text(asked));
    let Some(seen) = guest.cpu_model.as_deref() else {
        return SpecCheck::not_seen(path, value, NOT_REPORTED);
    };
    let is_generic = GENERIC_MODELS.iter().any(|name| seen.starts_with(name));
    let why = "programs and live migration depend on the CPU model";
    let known = NAMED_MODELS.iter().find(|name| asked.starts_with(**name));
    match (asked, known) {
        ("host-passthrough" | "host-model", _) if is_generic => {
            SpecCheck::new(path, value, SpecValue::Text(seen), false, why)
        }
        (_, Some(name)) => SpecCheck::new(path, value, SpecValue::Text(seen), has_name(seen, name), why),
        _ => SpecCheck {
            seen: Some(SpecValue::Text(seen)),
            ..SpecCheck::not_seen(path, value, "the name of this model in the guest is not known")
        },
    }
}

fn feature<'a>(asked: &'a CpuFeatureSpec, guest: &GuestHardware) -> Option<SpecCheck<'a>> {
    let wanted = asked.wanted?;
    let path = SpecPath::Item("spec.domain.cpu.features", &asked.name, "policy");
    let seen = guest.cpu_flags.map(|flags| flags.has(&asked.name));
    Some(match seen {
        Some(Some(seen)) => SpecCheck::new(
            path,
            SpecValue::Flag(wanted),
            SpecValue::Flag(seen),
            seen == wanted,
            "programs that need the feature fail, and a forbidden one can be used",
        ),
        Some(None) => SpecCheck::not_seen(
            path,
            SpecValue::Flag(wanted),
            "the kernel's name of this feature is not known",
        ),
        None => SpecCheck::not_seen(path, SpecValue::Flag(wanted), NOT_REPORTED),
    })
}
