use base64::{Engine as _, engine::general_purpose::STANDARD};
use virtfleet_wire::layered::parse_yaml;

use super::*;
use crate::{cloud_init::tests::payload, own::DELIVER, payload::UNIT_PATH, script::Mechanism};

const UBUNTU: &str = "\
# Kept.
apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: |
      {}
  creationTimestamp: 2026-01-01T00:00:00Z
  managedFields:
  - manager: kubectl
    fieldsV1:
      f:spec: {}
  name: osp-ubuntu  # theirs
  namespace: kube-system
  resourceVersion: \"1\"
spec:
  osName: \"ubuntu\"
  osVersion: \"24.04\"
  version: \"v1.11.2\"
  supportedCloudProviders:
    - name: kubevirt
  bootstrapConfig:
    files: []
  provisioningConfig:
    supportedContainerRuntimes:
      - name: containerd
        files:
          - path: /etc/crictl.yaml
            content: {inline: {data: x}}
    files:
      # The first of theirs.
      - path: /opt/bin/setup
        permissions: 755
        content:
          inline:
            encoding: b64
            data: |
              #!/bin/bash
              {{- template \"x\" }}

              true
status: {}
";

fn flatcar() -> String {
    UBUNTU.replace("osName: \"ubuntu\"", "osName: flatcar").replace(
        "  supportedCloud",
        "  provisioningUtility: ignition\n  supportedCloud",
    )
}

fn digest(text: &str) -> String {
    format!(
        "{:08x}",
        text.bytes()
            .fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()))
    )
}

fn rendered(more: &str, profile: &str, naming: &Naming) -> Result<RenderedProfile, String> {
    let profile = Profile::read("osp.yaml", profile)?;
    render(
        &payload(more),
        Platform::Kkp,
        &profile,
        naming,
        &digest,
        "# made\n",
    )
}

fn value(text: &str) -> Value {
    parse_yaml(text).unwrap().remove(0).to_json()
}

/// What OSM makes of a file's content: it executes it as a Go template. Only the escaped mark is
/// known here.
fn template(data: &str) -> String {
    let mut rest = data;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once("{{") {
        let Some(after) = after.strip_prefix(" \"{{\" }}") else {
            panic!("a template: {after}")
        };
        out.push_str(before);
        out.push_str("{{");
        rest = after;
    }
    out + rest
}

/// What the guest gets of a file, as OSM's generator and cloud-init or Ignition pass it on.
fn delivered(file: &Value, ignition: bool) -> Vec<u8> {
    let data = template(file["content"]["inline"]["data"].as_str().unwrap());
    let encoding = file["content"]["inline"]["encoding"]
        .as_str()
        .filter(|_| !ignition);
    let content = if encoding == Some("b64") {
        STANDARD.encode(&data)
    } else {
        data
    };
    // Sprig's `indent` prefixes each line, the empty one after the last line feed, too.
    let indented: Vec<String> = content.split('\n').map(|line| format!("    {line}")).collect();
    let chomp = if ignition { "|" } else { "|-" };
    let yaml = format!("content: {chomp}\n{}\nnext: 1\n", indented.join("\n"));
    let text = value(&yaml)["content"].as_str().unwrap().to_owned();
    match encoding {
        None => text.into_bytes(),
        Some("b64") => STANDARD.decode(text).unwrap(),
        Some("gz+b64") => unzipped(&STANDARD.decode(text).unwrap()),
        Some(other) => panic!("{other}"),
    }
}

fn unzipped(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut bytes).unwrap();
    bytes
}

/// The script that a script for Ignition unpacks.
fn unpacked(text: &str) -> String {
    assert!(text.starts_with("#!/bin/sh\numask 077\n"), "{text}");
    let (_, rest) = text.split_once(" sh \"$f\" \"$@\"\n").unwrap();
    let packed = STANDARD.decode(rest.strip_suffix("\nEND\n").unwrap()).unwrap();
    String::from_utf8(unzipped(&packed)).unwrap()
}

#[test]
fn the_script_and_its_unit_arrive_unchanged_through_osm() {
    let more = "files:\n- {path: /x, mode: \"0600\", content: \"a {{ b }} {{{c: #d\\n\\n\\te\\n\"}\n";
    let payload = payload(more);
    for (profile, ignition) in [(UBUNTU.to_owned(), false), (flatcar(), true)] {
        let rendered = rendered(more, &profile, &Naming::default()).unwrap();
        assert_eq!(rendered.notes, Vec::<String>::new());
        let value = value(&rendered.text);
        let files = value["spec"]["provisioningConfig"]["files"].as_array().unwrap();
        let text = |path: &str| {
            let file = files.iter().find(|file| file["path"] == path).unwrap();
            let permissions = file["permissions"].as_u64().unwrap();
            (permissions, String::from_utf8(delivered(file, ignition)).unwrap())
        };
        let (permissions, script) = text(DELIVER);
        let script = if ignition { unpacked(&script) } else { script };
        assert_eq!(script, crate::script::script(&payload, Mechanism::Files));
        assert_eq!(permissions, 700);
        let (permissions, unit) = text(UNIT_PATH);
        for part in [
            "\nBefore=setup.service containerd.service kubelet.service\n",
            "\n[Service]\nEnvironmentFile=-/etc/environment\n",
            "\nExecStart=/bin/sh /var/lib/virtfleet/delivery/deliver\n",
        ] {
            assert!(unit.contains(part), "{part}: {unit}");
        }
        assert!(!unit.contains("[Install]") && permissions == 644, "{unit}");
        assert_eq!(files.last().unwrap()["path"], "/opt/bin/setup");
    }
}

/// An agent that is missing must not prevent a node, so nothing here can end OSM's loop in failure,
/// and no unit requires the delivery.
#[test]
fn a_profile_gets_files_and_drop_ins_only() {
    for profile in [UBUNTU.to_owned(), flatcar()] {
        let before = value(&profile);
        let rendered = rendered("", &profile, &Naming::default()).unwrap();
        let mut after = value(&rendered.text);
        let files = after["spec"]["provisioningConfig"]["files"]
            .as_array_mut()
            .unwrap();
        let added: Vec<Value> = files.drain(..files.len() - 1).collect();
        after["spec"]["version"] = before["spec"]["version"].clone();
        assert_eq!(after["spec"], before["spec"]);
        for unit in ["setup.service", "multi-user.target"] {
            let path = format!("/etc/systemd/system/{unit}.d/20-virtfleet-delivery.conf");
            let file = added.iter().find(|file| file["path"] == path).unwrap();
            let text = file["content"]["inline"]["data"].as_str().unwrap();
            assert_eq!(text, "[Unit]\nWants=virtfleet-delivery.service\n");
        }
    }
}

#[test]
fn the_author_text_is_kept_and_the_servers_fields_are_not() {
    let rendered = rendered("", UBUNTU, &Naming::default()).unwrap();
    for line in [
        "# made",
        "# Kept.",
        "      # The first of theirs.",
        "  name: osp-ubuntu-virtfleet",
        "              {{- template \"x\" }}",
    ] {
        assert!(
            rendered.text.lines().any(|found| found == line),
            "{line}: {}",
            rendered.text
        );
    }
    let value = value(&rendered.text);
    assert_eq!(
        value["metadata"],
        json!({"name": "osp-ubuntu-virtfleet", "namespace": "kube-system"})
    );
    assert_eq!(value["status"], Value::Null);
    assert_eq!(value["kind"], "OperatingSystemProfile");
    let custom = Naming {
        name: Some("mine".to_owned()),
        version: Some("v2.0.0".to_owned()),
        custom: true,
    };
    let rendered = self::rendered("", UBUNTU, &custom).unwrap();
    let value = self::value(&rendered.text);
    assert_eq!(
        value["metadata"],
        json!({"name": "mine", "namespace": "kubermatic"})
    );
    assert_eq!(
        (&value["kind"], &value["spec"]["version"]),
        (&json!("CustomOperatingSystemProfile"), &json!("v2.0.0"))
    );
}

/// OSM refuses another content with the same version.
#[test]
fn the_version_follows_the_content() {
    let version = |more: &str, profile: &str| {
        let rendered = rendered(more, profile, &Naming::default()).unwrap();
        value(&rendered.text)["spec"]["version"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = version("", UBUNTU);
    assert!(first.starts_with("v1.11.2-virtfleet-"), "{first}");
    assert_eq!(first, version("", UBUNTU));
    assert_ne!(first, version("wait: 30s\n", UBUNTU));
    assert_ne!(first, version("", &UBUNTU.replace("true", "false")));
    let pre = version("", &UBUNTU.replace("v1.11.2", "v1.11.2-rc.1+x"));
    assert!(pre.starts_with("v1.11.2-rc.1.virtfleet-"), "{pre}");
}

/// What cannot be edited by line is written anew, with the same content.
#[test]
fn other_layouts_give_the_same_profile() {
    for profile in [
        to_yaml(&value(UBUNTU)),
        value(UBUNTU).to_string(),
        UBUNTU.replace(
            "    files:\n      # The first of theirs.\n      - path: /opt/bin/setup\n",
            "    files:\n      -\n        path: /opt/bin/setup\n",
        ),
        format!("---\n{UBUNTU}"),
    ] {
        let rendered = rendered("", &profile, &Naming::default()).unwrap();
        let expected = self::rendered("", UBUNTU, &Naming::default()).unwrap();
        assert_eq!(value(&rendered.text), value(&expected.text));
    }
    let none = UBUNTU
        .split("    files:\n      # The first")
        .next()
        .unwrap()
        .to_owned();
    let rendered = rendered("", &none, &Naming::default()).unwrap();
    assert_eq!(
        value(&rendered.text)["spec"]["provisioningConfig"]["files"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    assert!(
        rendered.notes[0].contains("could not be extended in place"),
        "{:?}",
        rendered.notes
    );
}

#[test]
fn what_osm_would_refuse_is_refused_with_its_place() {
    let twice = rendered("", UBUNTU, &Naming::default()).unwrap().text;
    let named = |name: &str| Naming {
        name: Some(name.to_owned()),
        ..Naming::default()
    };
    let versioned = Naming {
        version: Some("1.2.3".to_owned()),
        ..Naming::default()
    };
    let none = Naming::default();
    for (more, profile, naming, expected) in [
        ("", "", &none, "osp.yaml: empty; print one with"),
        ("", "a: [", &none, "osp.yaml:2: not YAML"),
        (
            "",
            "kind: Pod\n",
            &none,
            "osp.yaml:1: not an OperatingSystemProfile",
        ),
        (
            "",
            &format!("{UBUNTU}---\na: 1\n"),
            &none,
            "a second object starts here",
        ),
        (
            "",
            &UBUNTU.replace("  version: \"v1.11.2\"\n", ""),
            &none,
            "spec.version is missing",
        ),
        (
            "",
            &UBUNTU.replace("v1.11.2", "1.11"),
            &none,
            "spec.version is \"1.11\"",
        ),
        (
            "",
            &UBUNTU.replace("  provisioningConfig:", "  other:"),
            &none,
            "spec.provisioningConfig is missing",
        ),
        (
            "",
            &flatcar().replace("ignition", "kickstart"),
            &none,
            "spec.provisioningUtility is \"kickstart\"",
        ),
        (
            "",
            &twice,
            &none,
            "spec.provisioningConfig already has /var/lib/virtfleet/delivery/deliver",
        ),
        (
            "files: [{path: /etc/crictl.yaml, content: x}]\n",
            UBUNTU,
            &none,
            "already has /etc/crictl.yaml",
        ),
        ("", UBUNTU, &named("osp-ubuntu"), "the name of the original"),
        ("", UBUNTU, &named("Mine"), "a name has lowercase letters"),
        ("", UBUNTU, &versioned, "--version 1.2.3: OSM requires"),
    ] {
        let error = rendered(more, profile, naming).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn doubts_about_the_original_are_noted() {
    let units = UBUNTU
        .replace(
            "    files: []\n",
            "    files: []\n    units: [{name: a.service}]\n",
        )
        .replace("- name: kubevirt", "- name: aws");
    let rendered = rendered("", &units, &Naming::default()).unwrap();
    assert!(
        rendered.notes[0].contains("refuses `units`") && rendered.notes[1].contains("does not list kubevirt"),
        "{:?}",
        rendered.notes
    );
}
