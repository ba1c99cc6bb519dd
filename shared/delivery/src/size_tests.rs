//! Sizes of what is rendered for a VM that enrols with a join token, and gets the agent from a URL.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use virtfleet_wire::layered::parse_yaml;

use crate::{
    cloud_init::{self, Form},
    gzip::gzip,
    ignition,
    osp::{self, Naming, Profile},
    payload::{Outside, Payload, build},
    spec::{self, Platform},
};

/// Maximum size of user-data without the agent's binary.
const MAX_USER_DATA_BYTES: usize = 4096;
/// An authority as the collector makes it.
const AUTHORITY: &str = include_str!("../../../cloud-init/fleet-ca.crt");
const MADE: &str = "# Made by `virtfleetctl render cloud-init delivery.yaml` (virtfleet 0.1.0): change delivery.yaml and render \
                    again.\n";
/// A binary of one kind of machine.
const BINARY: &str = "sha256: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881, sources: [{url: \
                      \"https://mirror.example/virtfleet/0.1.0/x86_64/virtfleet-agent\"}]";
/// The same, from a disk first.
const DISK_BINARY: &str = "sha256: a1fce4363854ff888cff4b8e7875d600c2682390412a8cf79b37d0b11148b0fa, sources: [{disk: {label: \
                           virtfleet, path: virtfleet-agent}}, {url: \
                           \"https://mirror.example/virtfleet/0.1.0/aarch64/virtfleet-agent\"}]";
const TOKEN: &str = "settings: {push: {collector: \"relay.tenant-a.svc:10913\", tokenFile: /etc/virtfleet/join-token}}\n\
                     files: [{path: /etc/virtfleet/join-token, mode: \"0600\", content: \
                     \"vft1.4f9c2f1e.WJR5GYDhF3vDkQ1l6u0n9eS7mXcT8pZbAqLrNiOaUyE\\n\"}]\n";

/// What precedes the other settings: the disks of `cloud-init/kkp.yaml`.
const DISKS: &str = "settings: {disks: [{name: containers, match: {size: 50Gi, order: 1, allowPositional: true}, \
                     filesystem: xfs, mountPoint: /var/lib/containerd, seedFrom: existing, required: true}, {name: data, \
                     match: {size: 200Gi, order: 1, allowPositional: true}, mountPoint: /srv/data}], ";

fn payload(agent: &str, more: &str) -> Payload {
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\ntls: {{enrolment: true}}\nagent: {{version: 0.1.0, {agent}}}\n{more}"
    );
    let checked = spec::read("d.yaml", &text).unwrap();
    let mut outside = Outside {
        read: &mut |_| Err("not used".to_owned()),
        sha256: &mut |_| Err("not used".to_owned()),
        fleet_ca: &mut || Ok(AUTHORITY.into()),
    };
    build(&checked, &mut outside).unwrap()
}

fn assert_small(what: &str, bytes: usize) {
    assert!(
        bytes <= MAX_USER_DATA_BYTES,
        "{what}: {bytes} bytes of user-data, at most {MAX_USER_DATA_BYTES}"
    );
}

#[test]
fn user_data_for_cloud_init_is_small() {
    let machines = format!("machines: {{x86_64: {{{BINARY}}}, aarch64: {{{DISK_BINARY}}}}}");
    for agent in [BINARY, DISK_BINARY, machines.as_str()] {
        for form in [Form::CloudConfig, Form::Mime] {
            let text = cloud_init::render(&payload(agent, TOKEN), form, &[], MADE)
                .unwrap()
                .text;
            assert_small(&format!("{form:?}: {agent}"), gzip(text.as_bytes()).len());
        }
    }
}

#[test]
fn a_configuration_for_ignition_is_small() {
    for (agent, more) in [(BINARY, TOKEN), (DISK_BINARY, "")] {
        let config = ignition::render(&payload(agent, more), None).unwrap();
        assert_small(agent, format!("{config:#}\n").len());
    }
}

/// A profile that has nothing but its own form.
fn profile(utility: &str) -> String {
    format!(
        "apiVersion: operatingsystemmanager.k8c.io/v1alpha1\nkind: OperatingSystemProfile\nmetadata: {{name: a}}\nspec:\n  \
         osName: a\n  version: v1.0.0\n  provisioningUtility: {utility}\n  supportedCloudProviders: [{{name: kubevirt}}]\n  \
         provisioningConfig: {{files: []}}\n"
    )
}

/// What a file of a profile adds to the cloud-config that OSM makes of it, or to the data of the
/// configuration for Ignition.
fn rendered_bytes(file: &Value) -> usize {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (path, inline) = (text(&file["path"]), &file["content"]["inline"]);
    let data = text(&inline["data"]);
    let (encoding, data) = match inline["encoding"].as_str() {
        None => return path.len() + data.len(),
        Some("b64") => ("b64", STANDARD.encode(data)),
        Some(other) => (other, data),
    };
    let permissions = &file["permissions"];
    format!(
        "- path: '{path}'\n  permissions: '0{permissions}'\n  encoding: '{encoding}'\n  content: |-\n    {data}\n\n"
    )
    .len()
}

/// The user-data of a machine of KKP is OSM's, and has nothing of the delivery: this is what the
/// Secret with the provisioning configuration grows by.
#[test]
fn a_profile_of_kkp_grows_little() {
    let disks = format!("platform: kkp\n{TOKEN}").replace("settings: {", DISKS);
    for (utility, more) in [
        ("cloud-init", TOKEN),
        ("cloud-init", disks.as_str()),
        ("ignition", disks.as_str()),
    ] {
        let profile = profile(utility);
        let profile = Profile::read("osp.yaml", &profile).unwrap();
        let (naming, digest) = (Naming::default(), |_: &str| "00000000".to_owned());
        let payload = payload(BINARY, more);
        let rendered = osp::render(&payload, Platform::Kkp, &profile, &naming, &digest, "").unwrap();
        let value = parse_yaml(&rendered.text).unwrap().remove(0).to_json();
        let files = value["spec"]["provisioningConfig"]["files"].as_array().unwrap();
        assert_eq!(files.len(), 4, "{}", rendered.text);
        assert_small(utility, files.iter().map(rendered_bytes).sum());
    }
}
