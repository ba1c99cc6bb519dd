//! The verb `virtio`: prints devices, queues and interrupts as a tree, with their findings.

use serde::Serialize;
use serde_json::{Value, json};
use virtfleet_agent_core::virtio::{Device, Machine, status};
use virtfleet_agent_host::is_root;
use virtfleet_agent_state::{identity::observe, settings, virtio::inspect};
use virtfleet_runtime::exit::Code;
use virtfleet_wire::finding::{Finding, Severity};

use super::{failure::Failure, print, verb::Args, virtio_text::text};
use crate::output::Output;

/// The document of `-o json` and `-o yaml`.
#[derive(Serialize)]
struct Document<'a> {
    machine: Value,
    findings: &'a [Finding],
}

/// The machine, with names beside its numeric fields: `typeName`, `statusNames`, `negotiatedNames`,
/// and `offeredNames` if known.
fn named(machine: &Machine) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(machine)?;
    let devices = value.get_mut("devices").and_then(Value::as_array_mut);
    for (device, fields) in machine.devices.iter().zip(devices.into_iter().flatten()) {
        if let Some(fields) = fields.as_object_mut() {
            fields.extend(names(device).map(|(name, value)| (name.to_owned(), value)));
        }
    }
    Ok(value)
}

fn names(device: &Device) -> impl Iterator<Item = (&'static str, Value)> {
    let offered = device.offered.map(|offered| offered.names(device.kind));
    [
        ("typeName", Some(json!(device.kind.to_string()))),
        ("statusNames", device.status.map(|now| json!(status::names(now)))),
        (
            "negotiatedNames",
            Some(json!(device.negotiated.names(device.kind))),
        ),
        ("offeredNames", offered.map(|names| json!(names))),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}

/// Inspects the devices and prints them. Exit code 1 if there is a critical finding.
pub(super) fn show(args: &Args, all: bool, output: Output) -> Result<Code, Failure> {
    let settings = settings::load(&args.roots, args.config.as_deref());
    let boot_id = observe(&args.roots).boot_id;
    let root = is_root();
    let seen = inspect(&args.roots, &boot_id, &settings.config.nic, root);
    let document = Document {
        machine: named(&seen.machine)?,
        findings: &seen.findings,
    };
    print::coloured(&output.render(&document, |_| text(&seen, all, root))?)?;
    let critical = |finding: &Finding| finding.severity == Severity::Critical;
    Ok(if seen.findings.iter().any(critical) {
        Code::Failure
    } else {
        Code::Ok
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use virtfleet_agent_state::virtio::sample;

    #[test]
    fn numbers_have_their_names_beside_them() {
        let value = named(&sample::machine()).unwrap();
        let device = &value["devices"][1];
        assert_eq!(
            (&device["kind"], &device["typeName"], &device["status"]),
            (&json!(2), &json!("blk"), &json!(15))
        );
        assert_eq!(
            device["statusNames"],
            json!(["ACKNOWLEDGE", "DRIVER", "DRIVER_OK", "FEATURES_OK"])
        );
        assert_eq!(
            device["negotiatedNames"],
            json!(["FLUSH", "MQ", "INDIRECT_DESC", "EVENT_IDX", "VERSION_1"])
        );
        assert!(device.get("offeredNames").is_none());
        assert!(value["devices"][0]["offeredNames"].is_array());
    }
}
