//! The script as a file: that of Ignition, and of profiles of KKP for cloud-init and for Flatcar.

use std::{fs, io::Read as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde_json::Value;
use virtfleet_wire::layered::parse_yaml;

use super::{
    guest::{Guest, render, shipped},
    sources::needs,
};

const DELIVER: &str = "var/lib/virtfleet/delivery/deliver";
/// What the boot command keeps in place, and other mechanisms bring.
const OF_THE_MECHANISM: [&str; 3] = [
    DELIVER,
    "etc/systemd/system/virtfleet-delivery.service",
    "etc/systemd/system/multi-user.target.wants/virtfleet-delivery.service",
];

fn unzipped(packed: &str) -> String {
    let packed = STANDARD.decode(packed).unwrap();
    let mut text = String::new();
    GzDecoder::new(packed.as_slice())
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// The script of an Ignition configuration.
fn of_ignition(guest: &Guest) -> String {
    let input = guest.at("input.yaml");
    let text = render(["ignition".as_ref(), "--without-tls".as_ref(), input.as_os_str()]);
    let config: Value = serde_json::from_str(&text).unwrap();
    let source = config["storage"]["files"][0]["contents"]["source"]
        .as_str()
        .unwrap();
    unzipped(source.strip_prefix("data:;base64,").unwrap())
}

/// The script of a profile with this `provisioningUtility`.
fn of_profile(guest: &Guest, utility: &str) -> String {
    let profile = fs::read_to_string(shipped("tests/fixtures/osm/osp.yaml")).unwrap();
    let cloud_init = "provisioningUtility: cloud-init";
    assert!(profile.contains(cloud_init));
    guest.write(
        "osp.yaml",
        profile.replace(cloud_init, &format!("provisioningUtility: {utility}")),
    );
    let (input, profile) = (guest.at("input.yaml"), guest.at("osp.yaml"));
    let text = render([
        "osp".as_ref(),
        "--without-tls".as_ref(),
        "--from".as_ref(),
        profile.as_os_str(),
        input.as_os_str(),
    ]);
    let value = parse_yaml(&text).unwrap().remove(0).to_json();
    let files = value["spec"]["provisioningConfig"]["files"].as_array().unwrap();
    let path = format!("/{DELIVER}");
    let file = files.iter().find(|file| file["path"] == path).unwrap();
    let inline = &file["content"]["inline"];
    let data = inline["data"].as_str().unwrap();
    match inline["encoding"].as_str() {
        Some("gz+b64") => unzipped(data),
        None => data.to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tier2_the_script_as_a_file_leaves_what_the_boot_command_leaves() {
    let test = "tier2_the_script_as_a_file_leaves_what_the_boot_command_leaves";
    if !needs(test, &["bash", "curl", "base64", "gzip"]) {
        return;
    }
    // The shell of Flatcar; other tests use dash, too.
    let guest = Guest::new().shell("bash");
    guest.deliver_the_source("files:\n- { path: /etc/motd.d/x, mode: \"0600\", content: \"é\" }\n");
    let ran = guest.boot();
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    let without_mechanism = || {
        let mut state = guest.state();
        for name in OF_THE_MECHANISM {
            state.remove(name);
        }
        state
    };
    let whole = without_mechanism();
    assert!(whole.contains_key("etc/motd.d/x") && guest.has_agent());

    let scripts = [
        of_ignition(&guest),
        of_profile(&guest, "cloud-init"),
        of_profile(&guest, "ignition"),
    ];
    for script in scripts {
        for folder in ["etc/systemd", "etc/virtfleet", "etc/motd.d", "opt", "var", "run"] {
            fs::remove_dir_all(guest.at(&format!("root/{folder}"))).unwrap();
        }
        for folder in ["root/opt", "root/run"] {
            fs::create_dir(guest.at(folder)).unwrap();
        }
        guest.write(&format!("root/{DELIVER}"), &script);
        for run in 1..=2 {
            fs::remove_file(guest.at("calls")).ok();
            let ran = guest.service();
            assert_eq!(ran.code, Some(0), "run {run}: {}", ran.said);
            assert_eq!(without_mechanism(), whole, "run {run}: {}", ran.said);
            let calls = guest.calls();
            let loaded = calls.iter().any(|call| call == "systemctl daemon-reload");
            assert_eq!(loaded, run == 1, "{calls:?}");
        }
    }
}
