//! SMBIOS fields. Only root can read the UUID and the serials (`drivers/firmware/dmi-id.c`, mode
//! 0400). An unprivileged agent takes them from the state file that root wrote in this boot.

use virtfleet_agent_core::identity::dmi::{clean, uuid};
use virtfleet_wire::identity::{Identity, Sourced};

use super::{
    field_reader::{FieldReader, GuestFile},
    identity_state::IDENTITY_STATE,
};

type Field = fn(&mut Identity) -> &mut Option<Sourced<String>>;

/// `boot_id`: the current boot's id if the state file may be used.
pub(super) fn fill(identity: &mut Identity, reader: &mut FieldReader<'_>, boot_id: Option<&str>) {
    let fields: [(&str, &str, Field); 5] = [
        ("smbiosUuid", "class/dmi/id/product_uuid", |identity| {
            &mut identity.smbios_uuid
        }),
        ("smbiosSerial", "class/dmi/id/product_serial", |identity| {
            &mut identity.smbios_serial
        }),
        ("vendor", "class/dmi/id/sys_vendor", |identity| {
            &mut identity.vendor
        }),
        ("product", "class/dmi/id/product_name", |identity| {
            &mut identity.product
        }),
        ("assetTag", "class/dmi/id/chassis_asset_tag", |identity| {
            &mut identity.asset_tag
        }),
    ];
    // Read at most once, and only when a field is missing.
    let mut state: Option<Result<Identity, String>> = None;
    for (name, path, field) in fields {
        let parse = |text: &str| match name {
            "smbiosUuid" => uuid(text),
            _ => clean(text),
        };
        let reason = match reader.attempt(GuestFile::Sys(path), parse) {
            Ok(value) => {
                *field(identity) = Some(value);
                continue;
            }
            Err(reason) => reason,
        };
        let mut reasons = vec![reason];
        if let Some(boot_id) = boot_id {
            let state = state.get_or_insert_with(|| {
                let state = IDENTITY_STATE
                    .read_any_boot(reader.roots)
                    .map_err(|error| error.to_string())?;
                if state.boot_id == boot_id {
                    Ok(state.identity)
                } else {
                    Err("written in another boot".to_owned())
                }
            });
            match state {
                Ok(known) => {
                    if let Some(value) = field(known).take() {
                        *field(identity) = Some(Sourced::new(value.value, format!("state:{IDENTITY_STATE}")));
                        continue;
                    }
                    reasons.push(format!("state:{IDENTITY_STATE}: no value"));
                }
                Err(reason) => reasons.push(format!("state:{IDENTITY_STATE}: {reason}")),
            }
        }
        reader.miss(name, reasons);
    }
}
