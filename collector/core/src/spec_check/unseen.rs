//! What a VMI asks of the infra node, and no guest can see.

use super::{
    check::SpecCheck,
    value::{SpecPath, SpecValue},
};
use crate::vmi_spec::VmiSpec;

/// Why nothing is seen.
const OF_THE_HOST: &str = "a property of the infra node that no guest can see";
/// The same of disks.
const OF_QEMU: &str = "a property of QEMU that no guest can see";

pub(super) fn checks<'a>(spec: &'a VmiSpec, all: &mut Vec<SpecCheck<'a>>) {
    let field = |path, asked| SpecCheck::not_seen(SpecPath::Field(path), asked, OF_THE_HOST);
    let size = spec.huge_page_size.as_deref();
    all.extend(size.map(|size| field("spec.domain.memory.hugepages.pageSize", SpecValue::Text(size))));
    if spec.cpu.is_dedicated {
        all.push(field(
            "spec.domain.cpu.dedicatedCpuPlacement",
            SpecValue::Flag(true),
        ));
    }
    if spec.cpu.isolates_emulator {
        all.push(field(
            "spec.domain.cpu.isolateEmulatorThread",
            SpecValue::Flag(true),
        ));
    }
    let policy = spec.io_threads_policy.as_deref();
    all.extend(policy.map(|policy| field("spec.domain.ioThreadsPolicy", SpecValue::Text(policy))));
    for disk in &spec.disks {
        let path = |field| SpecPath::Item("spec.domain.devices.disks", &disk.name, field);
        let io = disk.io.as_deref();
        all.extend(io.map(|io| SpecCheck::not_seen(path("io"), SpecValue::Text(io), OF_QEMU)));
        if disk.has_io_thread {
            all.push(SpecCheck::not_seen(
                path("dedicatedIOThread"),
                SpecValue::Flag(true),
                OF_QEMU,
            ));
        }
    }
}
