//! `make publish` and its scripts: what they require before they build anything.

use std::time::Duration;

use virtfleet_tests::process::Launch;

use crate::expressions::root;

/// Maximum time of one command.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn publish_requires_a_registry() {
    let make = |arguments: &[&str]| {
        let launch = Launch::new("make").arg("-C").arg(root()).arg("-n");
        let launch = launch.arg("publish").args(arguments).env("MAKEFLAGS", "");
        launch.said(STEP_TIMEOUT).unwrap()
    };
    let (code, said) = make(&[]);
    assert!(code == 2 && said.contains("name your registry"), "{code}: {said}");
    let (code, said) = make(&["REGISTRY=example.org/a", "TAG=7"]);
    assert_eq!(code, 0, "{said}");
    let checked = said.find("packaging/image/reference.sh 'example.org/a' '7'\n");
    assert!(
        checked.is_some() && checked < said.find("--profile collector"),
        "{said}"
    );
    for image in ["virtfleet-collector", "virtfleet-agent-disk"] {
        let target = format!("'docker://example.org/a/{image}:7'");
        assert!(said.contains(&target), "{target}: {said}");
    }
}

/// REGISTRY and TAG become parts of commands and of a manifest.
#[test]
fn publish_refuses_what_is_no_image_reference() {
    let script = |name: &str, arguments: &[&str]| {
        let launch = Launch::new(root().join("packaging/image").join(name));
        launch.args(arguments).said(STEP_TIMEOUT).unwrap()
    };
    for registry in [
        "registry.example.org",
        "registry.example.org:5000/a_b/c-d",
        "[::1]:5000",
    ] {
        let accepted = script("reference.sh", &[registry, "0.1.0_x-y"]);
        assert_eq!(accepted, (0, String::new()), "{registry}");
    }
    for (registry, tag, word) in [
        ("a|b", "1", "REGISTRY 'a|b'"),
        ("a&b", "1", "REGISTRY"),
        ("a\\b", "1", "REGISTRY"),
        ("a'b", "1", "REGISTRY"),
        ("a\nb", "1", "REGISTRY"),
        ("a/", "1", "REGISTRY"),
        ("https://a", "1", "is a URL"),
        ("a", "b|c", "TAG 'b|c'"),
        ("a", "b:c", "TAG"),
        ("a", "-b", "TAG"),
    ] {
        for (name, before) in [("reference.sh", &[][..]), ("agent-disk.sh", &["out", "agent"])] {
            let (code, said) = script(name, &[before, &[registry, tag]].concat());
            assert!(
                code == 1 && said.contains(word),
                "{name} {registry} {tag}: {said}"
            );
        }
    }
}
