//! What is shipped below `cloud-init/` is what `virtfleetctl render` prints, and the tools that
//! read it accept it.

use std::{fs, io::Read as _, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use virtfleet_tests::{
    osm::{self, Part},
    parts,
    process::Launch,
    skip,
};
use virtfleet_wire::layered::parse_yaml;

use super::guest::{render, shipped};

/// Set to rewrite the examples.
const UPDATE: &str = "VIRTFLEET_UPDATE_EXAMPLES";
/// The fleet's authority in the examples.
const FLEET_CA: [&str; 2] = ["--fleet-ca", "cloud-init/fleet-ca.crt"];
/// User-data is shown as text.
const EXAMPLES: [(&str, &[&str]); 8] = [
    (
        "delivery.cloud-config.yaml",
        &[
            "cloud-init",
            "--text",
            "cloud-init/delivery.yaml",
            FLEET_CA[0],
            FLEET_CA[1],
        ],
    ),
    (
        "delivery-with-user-data.cloud-config.yaml",
        &[
            "cloud-init",
            "--text",
            "cloud-init/delivery.yaml",
            FLEET_CA[0],
            FLEET_CA[1],
            "--with",
            "cloud-init/user-data.yaml",
        ],
    ),
    (
        "delivery-with-user-data.mime",
        &[
            "cloud-init",
            "--text",
            "cloud-init/delivery.yaml",
            FLEET_CA[0],
            FLEET_CA[1],
            "--form",
            "mime",
            "--with",
            "cloud-init/user-data.yaml",
        ],
    ),
    (
        "baked.cloud-config.yaml",
        &["cloud-init", "--text", "cloud-init/baked.yaml"],
    ),
    (
        "kkp.osp.yaml",
        &[
            "osp",
            "cloud-init/kkp.yaml",
            FLEET_CA[0],
            FLEET_CA[1],
            "--from",
            "tests/fixtures/osm/osp.yaml",
        ],
    ),
    (
        "delivery.ign",
        &["ignition", "cloud-init/delivery.yaml", FLEET_CA[0], FLEET_CA[1]],
    ),
    (
        "flatcar.ign",
        &[
            "ignition",
            "cloud-init/delivery.yaml",
            FLEET_CA[0],
            FLEET_CA[1],
            "--with",
            "cloud-init/flatcar.ign",
        ],
    ),
    (
        "machines.cloud-config.yaml",
        &[
            "cloud-init",
            "--text",
            "cloud-init/machines.yaml",
            FLEET_CA[0],
            FLEET_CA[1],
        ],
    ),
];

/// Rendered from the top of the tree, as whoever reads them would.
fn rendered(args: &[&str]) -> String {
    String::from_utf8(rendered_bytes(args)).unwrap()
}

fn rendered_bytes(args: &[&str]) -> Vec<u8> {
    let top = shipped("");
    let ctl = virtfleet_tests::bins::ctl().unwrap();
    let line = format!("cd '{}' && exec '{}' render \"$@\"", top.display(), ctl.display());
    Launch::new("sh")
        .args(["-c", &line, "sh"])
        .args(args)
        .bytes(Duration::from_secs(30))
        .unwrap()
}

#[test]
fn examples_are_as_they_are_rendered() {
    for (name, args) in EXAMPLES {
        let path = shipped("cloud-init/rendered").join(name);
        let now = rendered(args);
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&path, &now).unwrap();
        }
        let then = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(then, now, "{name}: {UPDATE}=1 rewrites it");
    }
}

/// Maximum size of user-data without the agent's binary.
const MAX_USER_DATA_BYTES: usize = 4096;

#[test]
fn every_example_is_small() {
    let assert_small = |name: &str, bytes: usize| {
        eprintln!("{name}: {bytes} bytes");
        assert!(bytes <= MAX_USER_DATA_BYTES, "{name}: {bytes} bytes of user-data");
    };
    for (name, args) in EXAMPLES {
        match args[0] {
            "cloud-init" => {
                let packed: Vec<&str> = args.iter().copied().filter(|arg| *arg != "--text").collect();
                let packed = rendered_bytes(&packed);
                assert_eq!(unzipped(&packed), rendered(args), "{name}");
                assert_small(name, packed.len());
            }
            // With a configuration of their own.
            "ignition" if args.contains(&"--with") => {}
            "ignition" => assert_small(name, rendered(args).len()),
            // User-data of a machine is OSM's bootstrap configuration, which stays as it is. The
            // provisioning configuration gets the delivery.
            _ => {
                let theirs = fs::read_to_string(shipped("tests/fixtures/osm/osp.yaml")).unwrap();
                let profiles = [theirs, rendered(args)];
                let [before, after] = profiles
                    .each_ref()
                    .map(|text| osm::cloud_config(text, Part::Bootstrap, &[]).unwrap());
                assert_eq!(before, after, "{name}");
                let [before, after] =
                    profiles.map(|text| osm::cloud_config(&text, Part::Provisioning, &[]).unwrap().len());
                assert_small(name, after - before);
            }
        }
    }
}

fn unzipped(packed: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    text
}

/// An example with everything in it that is compressed.
fn unpacked(name: &str, text: &str) -> String {
    let texts = |values: &Value, pick: fn(&Value) -> Option<&str>| {
        let values = values.as_array().unwrap().iter();
        let packed = values
            .filter_map(pick)
            .map(|packed| STANDARD.decode(packed).unwrap());
        packed.map(|packed| unzipped(&packed)).collect::<String>()
    };
    let extension = Path::new(name).extension();
    let more = if extension.is_some_and(|extension| extension == "ign") {
        let config: Value = serde_json::from_str(text).unwrap();
        texts(&config["storage"]["files"], |file| {
            file["contents"]["source"].as_str()?.strip_prefix("data:;base64,")
        })
    } else if name.ends_with(".osp.yaml") {
        let profile = parse_yaml(text).unwrap().remove(0).to_json();
        texts(&profile["spec"]["provisioningConfig"]["files"], |file| {
            let inline = &file["content"]["inline"];
            inline["data"].as_str().filter(|_| inline["encoding"] == "gz+b64")
        })
    } else {
        String::new()
    };
    text.to_owned() + &more
}

/// All VMs of a pool have the same user-data, and everyone in the guest can read it.
#[test]
fn no_example_has_a_secret() {
    for (name, args) in EXAMPLES {
        let text = fs::read_to_string(shipped("cloud-init/rendered").join(name)).unwrap();
        let text = unpacked(name, &text);
        assert!(!text.contains("PRIVATE KEY"), "{name}");
        let has_authority = args.contains(&FLEET_CA[0]);
        assert_eq!(text.contains("BEGIN CERTIFICATE"), has_authority, "{name}");
    }
}

#[test]
fn the_users_own_user_data_is_untouched() {
    let theirs = fs::read_to_string(shipped("cloud-init/user-data.yaml")).unwrap();
    let merged = rendered(EXAMPLES[1].1);
    for line in theirs.lines() {
        assert!(merged.lines().any(|found| found == line), "{line}");
    }
    let before = parse_yaml(&theirs).unwrap().remove(0).to_json();
    let mut after = parse_yaml(&merged).unwrap().remove(0).to_json();
    let commands = after["bootcmd"].as_array_mut().unwrap();
    assert!(commands.remove(0).as_str().unwrap().contains("virtfleet"));
    assert_eq!(after, before);
    assert!(rendered(EXAMPLES[2].1).contains(&theirs));
}

#[test]
fn the_settings_in_user_data_are_valid() {
    let document = parse_yaml(&rendered(EXAMPLES[3].1)).unwrap().remove(0).to_json();
    let script = document["bootcmd"][0].as_str().unwrap().to_owned();
    let after = script.split("50-delivery.yaml <<'END'\n").nth(1).unwrap();
    let settings = after.split("\nEND\n").next().unwrap();
    let written = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(written.path(), settings).unwrap();
    let loaded =
        virtfleet_agent_state::settings::load(&virtfleet_agent_host::Roots::default(), Some(written.path()));
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
}

pub(super) fn program(name: &str) -> anyhow::Result<()> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()));
    anyhow::ensure!(found, "there is no {name}");
    Ok(())
}

fn ask(program: &str, args: &[&str], file: &Path) {
    Launch::new(program)
        .args(args)
        .arg(file)
        .text(Duration::from_mins(1))
        .unwrap();
}

#[test]
fn tier2_cloud_init_accepts_the_cloud_configs() {
    let test = "tier2_cloud_init_accepts_the_cloud_configs";
    let there = skip::root().and_then(|()| parts::cloud_init());
    let Some((program, modules)) = skip::need(2, test, there).unwrap() else {
        return;
    };
    for (name, _) in EXAMPLES.iter().filter(|(name, _)| name.contains("cloud-config")) {
        // Debian's python3, whose packages its modules need.
        Launch::new("/usr/bin/python3")
            .env("PYTHONPATH", &modules)
            .arg(&program)
            .args(["schema", "-c"])
            .arg(shipped("cloud-init/rendered").join(name))
            .text(Duration::from_mins(1))
            .unwrap();
    }
}

#[test]
fn tier2_ignition_accepts_the_configuration() {
    let test = "tier2_ignition_accepts_the_configuration";
    let Some(()) = skip::need(2, test, program("ignition-validate")).unwrap() else {
        return;
    };
    ask(
        "ignition-validate",
        &[],
        &shipped("cloud-init/rendered/delivery.ign"),
    );
    // Into one that is there already.
    let folder = tempfile::tempdir().unwrap();
    let theirs = folder.path().join("theirs.ign");
    fs::write(
        &theirs,
        r#"{"ignition":{"version":"3.0.0"},"systemd":{"units":[{"name":"kubelet.service","enabled":true}]}}"#,
    )
    .unwrap();
    let input = shipped("cloud-init/delivery.yaml");
    let authority = shipped("cloud-init/fleet-ca.crt");
    let merged = render([
        "ignition".as_ref(),
        input.as_os_str(),
        "--fleet-ca".as_ref(),
        authority.as_os_str(),
        "--with".as_ref(),
        theirs.as_os_str(),
    ]);
    let path = folder.path().join("merged.ign");
    fs::write(&path, merged).unwrap();
    ask("ignition-validate", &[], &path);
}

/// What Butane makes of the fields that the example has (`variant: flatcar`, version 1.0.0 gives
/// spec 3.3.0): names and contents stay, an inline content becomes a URL.
fn butane(config: &Value) -> Value {
    assert_eq!(
        (&config["variant"], &config["version"]),
        (&json!("flatcar"), &json!("1.0.0"))
    );
    let mut files = config["storage"]["files"].clone();
    for file in files.as_array_mut().unwrap() {
        let inline = file["contents"]["inline"].as_str().unwrap().to_owned();
        let plain = inline
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        assert!(plain, "{inline} would be encoded");
        file["contents"] = json!({ "compression": "", "source": format!("data:,{inline}") });
    }
    json!({
        "ignition": { "version": "3.3.0" },
        "storage": { "files": files },
        "systemd": config["systemd"],
    })
}

#[test]
fn the_butane_example_gives_the_ignition_that_is_rendered() {
    let text = |name: &str| fs::read_to_string(shipped("cloud-init").join(name)).unwrap();
    // YAML 1.2 has no octal number 0644, and Butane reads YAML 1.1.
    let config = text("flatcar.bu").replace("mode: 0644", "mode: 420");
    let config = parse_yaml(&config).unwrap().remove(0).to_json();
    let theirs: Value = serde_json::from_str(&text("flatcar.ign")).unwrap();
    assert_eq!(butane(&config), theirs);

    let rendered: Value = serde_json::from_str(&text("rendered/flatcar.ign")).unwrap();
    let files = rendered["storage"]["files"].as_array().unwrap();
    assert_eq!(files[0], theirs["storage"]["files"][0]);
    assert_eq!(files[1]["path"], "/var/lib/virtfleet/delivery/deliver");
    let units = rendered["systemd"]["units"].as_array().unwrap();
    let kubelet = units
        .iter()
        .find(|unit| unit["name"] == "kubelet.service")
        .unwrap();
    let drop_ins: Vec<&str> = kubelet["dropins"]
        .as_array()
        .unwrap()
        .iter()
        .map(|drop_in| drop_in["name"].as_str().unwrap())
        .collect();
    assert_eq!(drop_ins, ["10-cgroup.conf"]);
    let ours = units
        .iter()
        .find(|unit| unit["name"] == "virtfleet-delivery.service");
    assert_eq!(ours.unwrap()["enabled"], true);
}
