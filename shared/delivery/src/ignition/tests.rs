use super::*;
use crate::cloud_init::tests::payload;

fn unpacked(entry: &Value) -> Vec<u8> {
    let source = entry["contents"]["source"].as_str().unwrap();
    let bytes = STANDARD
        .decode(source.strip_prefix("data:;base64,").unwrap())
        .unwrap();
    if entry["contents"]["compression"] == "gzip" {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut text).unwrap();
        text
    } else {
        bytes
    }
}

#[test]
fn the_same_files_are_delivered() {
    let payload = payload("files:\n- {path: /x, mode: \"0600\", content: short}\n");
    let config = render(&payload, None).unwrap();
    assert_eq!(config["ignition"]["version"], VERSION);
    let files = config["storage"]["files"].as_array().unwrap();
    assert_eq!(files.len(), payload.files.len());
    for (entry, file) in files.iter().zip(&payload.files) {
        assert_eq!(
            (entry["path"].as_str(), entry["mode"].as_u64()),
            (Some(file.path.as_str()), Some(file.mode.into()))
        );
        assert_eq!(unpacked(entry), file.content, "{}", file.path);
    }
    assert!(files.iter().any(|file| file["contents"]["compression"] == "gzip"));
    assert!(
        files.iter().any(|file| file["contents"]["compression"].is_null()),
        "gzip only where it pays"
    );
    let units = config["systemd"]["units"].as_array().unwrap();
    assert_eq!(units[0]["enabled"], true);
    assert_eq!(
        render(&payload, None).unwrap(),
        config,
        "the same input gives the same output"
    );
}

#[test]
fn an_existing_config_is_kept() {
    let payload = payload("");
    let theirs = r#"{"ignition":{"version":"3.4.0","config":{"merge":[]}},
        "storage":{"files":[{"path":"/a"}]},
        "systemd":{"units":[{"name":"kubelet.service","enabled":true,"dropins":[{"name":"a.conf"}]}]}}"#;
    let config = render(&payload, Some(theirs)).unwrap();
    assert_eq!(config["ignition"]["version"], "3.4.0");
    assert!(config["ignition"]["config"].is_object());
    assert_eq!(config["storage"]["files"][0]["path"], "/a");
    let kubelet = &config["systemd"]["units"][0];
    assert_eq!(
        (
            kubelet["enabled"].as_bool(),
            kubelet["dropins"].as_array().unwrap().len()
        ),
        (Some(true), 2)
    );
    let old = render(&payload, Some(r#"{"ignition":{"version":"3.1.0"}}"#)).unwrap();
    assert_eq!(old["ignition"]["version"], VERSION);

    for (theirs, expected) in [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "ignition.version is missing"),
        (r#"{"ignition":{"version":"2.3.0"}}"#, "ignition.version is 2.3.0"),
        (
            r#"{"ignition":{"version":"3.3.0"},"storage":[]}"#,
            "storage is not an object",
        ),
        (
            r#"{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/var/lib/virtfleet/delivery/wanted"}]}}"#,
            "storage.files already has /var/lib",
        ),
        (
            r#"{"ignition":{"version":"3.3.0"},"systemd":{"units":[{"name":"virtfleet-delivery.service"}]}}"#,
            "systemd.units already has virtfleet-delivery.service",
        ),
    ] {
        let error = render(&payload, Some(theirs)).unwrap_err();
        assert!(error.starts_with(expected), "{theirs}: {error}");
    }
}
