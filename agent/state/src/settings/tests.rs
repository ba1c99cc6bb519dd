use std::{fs, os::unix::fs::symlink};

use tempfile::TempDir;
use virtfleet_wire::settings::MetricsSettings;

use super::*;

const HEAD: &str = "apiVersion: virtfleet.io/v1alpha1\nkind: AgentConfig\n";
const TLS: &str = "server:\n  tls:\n    certificate: /c\n    key: /k\n    clientCA: /ca\n";

/// A root filesystem with these files. `HEAD` is prepended to each file that is not empty.
fn root(files: &[(&str, &str)]) -> (TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let head = if text.is_empty() { "" } else { HEAD };
        fs::write(path, format!("{head}{text}")).unwrap();
    }
    let roots = Roots {
        rootfs: dir.path().to_owned(),
        ..Roots::default()
    };
    (dir, roots)
}

fn problems(loaded: &LoadedSettings) -> Vec<String> {
    loaded.problems.iter().map(Problem::to_string).collect()
}

#[test]
fn files_are_read_by_name_and_the_directory_with_higher_precedence_wins() {
    let (dir, roots) = root(&[
        ("/etc/virtfleet/agent.yaml", TLS),
        ("/usr/lib/virtfleet/agent.d/50-a.yaml", "server: {maxRequests: 1}"),
        ("/etc/virtfleet/agent.d/50-a.yaml", "server: {maxRequests: 2}"),
        (
            "/run/virtfleet/agent.d/10-b.yaml",
            "server: {maxRequests: 3, maxConnections: 9}",
        ),
        ("/usr/lib/virtfleet/agent.d/70-masked.yaml", "log: {level: trace}"),
        ("/run/virtfleet/agent.d/70-masked.yaml", ""),
        ("/etc/virtfleet/agent.d/80-null.yaml", "log: {level: trace}"),
        ("/etc/virtfleet/agent.d/.swp.yaml", "log: {level: trace}"),
        ("/etc/virtfleet/agent.d/README", "nothing"),
    ]);
    symlink("/dev/null", dir.path().join("run/virtfleet/agent.d/80-null.yaml")).unwrap();
    let loaded = load(&roots, None);
    assert_eq!(problems(&loaded), [""; 0]);
    assert_eq!(
        loaded.files,
        [
            "/etc/virtfleet/agent.yaml",
            "/run/virtfleet/agent.d/10-b.yaml",
            "/etc/virtfleet/agent.d/50-a.yaml"
        ]
    );
    assert_eq!(
        loaded.masked,
        [
            "/usr/lib/virtfleet/agent.d/50-a.yaml",
            "/usr/lib/virtfleet/agent.d/70-masked.yaml",
            "/etc/virtfleet/agent.d/80-null.yaml",
            "/run/virtfleet/agent.d/70-masked.yaml",
            "/run/virtfleet/agent.d/80-null.yaml",
        ]
    );
    let server = loaded.config.server;
    assert_eq!((server.max_requests, server.max_connections), (2, 9));
    assert_eq!(
        loaded.config.log,
        virtfleet_wire::settings::LogSettings::default()
    );
}

#[test]
fn unreadable_files_are_problems_and_the_rest_applies() {
    let (dir, roots) = root(&[
        ("/etc/virtfleet/agent.yaml", TLS),
        ("/etc/virtfleet/agent.d/10.yml", "log: {level: trace}"),
        ("/etc/virtfleet/agent.d/40.yaml", "log: {level: debug}"),
    ]);
    let at = |name: &str| dir.path().join("etc/virtfleet/agent.d").join(name);
    fs::write(at("20.yaml"), [0xff, 0xfe]).unwrap();
    fs::write(at("25.yaml"), vec![b'#'; (1 << 20) + 1]).unwrap();
    fs::create_dir(at("30.yaml")).unwrap();
    symlink("nowhere", at("35.yaml")).unwrap();
    let loaded = load(&roots, None);
    assert_eq!(
        problems(&loaded),
        [
            "/etc/virtfleet/agent.d/10.yml: not read: the name of a fragment ends in .yaml",
            "/etc/virtfleet/agent.d/20.yaml: cannot be read: not UTF-8 text",
            "/etc/virtfleet/agent.d/25.yaml: cannot be read: larger than 1048576 bytes",
            "/etc/virtfleet/agent.d/30.yaml: cannot be read: not a regular file",
            "/etc/virtfleet/agent.d/35.yaml: cannot be read: no such file",
        ]
    );
    assert_eq!(loaded.skipped.len(), 4);
    assert_eq!(loaded.config.log.level, virtfleet_wire::settings::LogLevel::Debug);
}

#[test]
fn invalid_values_are_problems_and_are_ignored() {
    for (text, expected, listeners) in [
        (
            "server: {listeners: [{name: default, address: localhost}]}",
            "server.listeners[default].address: \"localhost\" is not an address and port such as [::]:10911 or \
             127.0.0.1:10911",
            0,
        ),
        (
            "server: {listeners: [{name: default, plain: true}]}",
            "server.listeners[default].plain: HTTP without TLS is allowed only for loopback addresses, but [::]:10911 is not one",
            0,
        ),
        (
            "server: {listeners: [{name: local, address: \"127.0.0.1:10911\", plain: true}]}",
            "server.listeners[local].address: 127.0.0.1:10911 is already used by listener default ([::]:10911)",
            1,
        ),
        (
            "server: {requestTimeout: 0s}",
            "server.requestTimeout: 0s leaves no time for any request",
            1,
        ),
        (
            "server: {listeners: []}",
            "server.listeners: empty, so metrics and the report would be unreachable; add at least one",
            0,
        ),
        (
            "metrics: {collectors: {cpux: true}}",
            "metrics.collectors.cpux: there is no collector \"cpux\"; did you mean \"cpu\"?",
            1,
        ),
        (
            "metrics: {filesystem: {mountTimeout: 0s}}",
            "metrics.filesystem.mountTimeout: must be more than 0; 5s is the default",
            1,
        ),
        (
            "metrics: {netdev: {deviceInclude: a, deviceExclude: b}, collectors: {cpu: false}}",
            "metrics.netdev.deviceInclude: metrics.netdev.deviceExclude and metrics.netdev.deviceInclude are both set; keep one of them",
            1,
        ),
    ] {
        let (_dir, roots) = root(&[
            ("/etc/virtfleet/agent.yaml", TLS),
            ("/etc/virtfleet/agent.d/x.yaml", text),
        ]);
        let loaded = load(&roots, None);
        assert_eq!(
            problems(&loaded),
            [format!("/etc/virtfleet/agent.d/x.yaml:3: {expected}")],
            "{text}"
        );
        assert_eq!(loaded.config.server.listeners.len(), listeners, "{text}");
        assert_eq!(loaded.config.metrics, MetricsSettings::default(), "{text}");
        assert!(!loaded.config.server.request_timeout.0.is_zero());
    }
}

#[test]
fn removed_collectors_are_no_problem() {
    let names = virtfleet_wire::settings::REMOVED_COLLECTORS;
    let off: Vec<String> = names.iter().map(|name| format!("{name}: false")).collect();
    let text = format!(
        "metrics:\n  profile: dashboards\n  powersupplyclass: {{ignored: ^BAT}}\n  collectors: {{{}}}\n",
        off.join(", ")
    );
    let (_dir, roots) = root(&[
        ("/etc/virtfleet/agent.yaml", TLS),
        ("/etc/virtfleet/agent.d/x.yaml", &text),
    ]);
    let loaded = load(&roots, None);
    assert_eq!(problems(&loaded), [""; 0]);
    assert_eq!(loaded.ignored.len(), 1 + names.len(), "{:?}", loaded.ignored);
    let expected = MetricsSettings {
        profile: virtfleet_wire::settings::MetricsProfile::Dashboards,
        ..MetricsSettings::default()
    };
    assert_eq!(loaded.config.metrics, expected);
}

#[test]
fn what_is_wrong_with_a_disk_is_named_where_it_stands() {
    let (_dir, roots) = root(&[
        ("/etc/virtfleet/agent.yaml", TLS),
        (
            "/etc/virtfleet/agent.d/disks.yaml",
            "disks:\n- name: data\n  match: {serial: data1}\n  mountPoint: /etc\n- name: other\n  filesystem: swap\n",
        ),
    ]);
    let loaded = load(&roots, None);
    assert_eq!(
        problems(&loaded),
        [
            "/etc/virtfleet/agent.d/disks.yaml:6: disks[data].mountPoint: /etc is needed by the system or the agent \
             before the disk is mounted; choose another directory",
            "/etc/virtfleet/agent.d/disks.yaml:7: disks[other].match: empty, so any disk would match; name the disk by \
             serial, volume or path, or a partition by partUuid or partLabel",
        ]
    );
    assert_eq!(
        loaded.config.disks.len(),
        2,
        "they stay: the plan refuses the wrong ones"
    );
}

#[test]
fn https_without_certificates_is_a_problem_and_plain_loopback_still_works() {
    let (_dir, roots) = root(&[(
        "/etc/virtfleet/agent.yaml",
        "server:\n  tls: {key: /k}\n  listeners: [{name: local, address: \"[::1]:1\", plain: true}]\n",
    )]);
    let loaded = load(&roots, None);
    assert_eq!(
        problems(&loaded),
        [
            "/etc/virtfleet/agent.yaml:4: server.tls: listener default serves HTTPS and needs server.tls.certificate, \
         server.tls.clientCA; set them, or make the listener plain on a loopback address"
        ]
    );
    assert_eq!(loaded.config.server.listeners.len(), 1);

    let (_dir, roots) = root(&[]);
    let loaded = load(&roots, None);
    assert!(
        problems(&loaded)[0].starts_with("(default): server.tls: "),
        "{:?}",
        problems(&loaded)
    );
}

#[test]
fn enrolment_needs_the_authority_of_clients_and_no_certificate() {
    let load_tls = |tls: &str| {
        let text = format!("server:\n  tls: {{{tls}}}\n");
        let (_dir, roots) = root(&[("/etc/virtfleet/agent.yaml", &text)]);
        load(&roots, None)
    };
    let good = load_tls("enrolment: true, clientCA: /ca");
    assert_eq!(problems(&good), [""; 0]);
    assert!(good.config.server.tls.enrolment);
    assert_eq!(good.config.server.listeners.len(), 1);

    let without = load_tls("enrolment: true");
    assert_eq!(
        problems(&without),
        [
            "/etc/virtfleet/agent.yaml:4: server.tls: listener default serves HTTPS and needs server.tls.clientCA; set it, \
             or make the listener plain on a loopback address"
        ]
    );
    let both = load_tls("enrolment: true, clientCA: /ca, certificate: /c, key: /k");
    assert_eq!(
        problems(&both),
        [
            "/etc/virtfleet/agent.yaml:4: server.tls.enrolment: with enrolment a collector issues the certificate, but \
             server.tls.certificate and server.tls.key are set; remove them, or set enrolment to false"
        ]
    );
    assert!(!both.config.server.tls.enrolment, "the files are used");
    assert_eq!(both.config.server.listeners.len(), 1);
    let half = load_tls("enrolment: true, clientCA: /ca, key: /k");
    assert!(
        problems(&half)[0].contains("server.tls.key is set; remove it"),
        "{:?}",
        problems(&half)
    );
    assert_eq!(half.config.server.listeners.len(), 0);
}

#[test]
fn overlapping_addresses_are_found_and_port_zero_never_overlaps() {
    for (addresses, good) in [
        (["127.0.0.1:1", "127.0.0.1:1"], 1),
        (["0.0.0.0:1", "127.0.0.1:1"], 1),
        (["127.0.0.1:1", "[::]:1"], 1),
        (["0.0.0.0:1", "[::1]:1"], 2),
        (["127.0.0.1:1", "127.0.0.2:1"], 2),
        (["127.0.0.1:1", "127.0.0.1:2"], 2),
        (["[::]:0", "[::]:0"], 2),
    ] {
        let list = format!(
            "{TLS}  listeners: [{{name: default, address: \"{}\"}}, {{name: b, address: \"{}\"}}]\n",
            addresses[0], addresses[1]
        );
        let (_dir, roots) = root(&[("/etc/virtfleet/agent.yaml", &list)]);
        assert_eq!(
            load(&roots, None).config.server.listeners.len(),
            good,
            "{addresses:?}"
        );
    }
}

#[test]
fn the_schema_has_an_id() {
    let schema = schema();
    assert_eq!(
        schema["$id"],
        "https://virtfleet.io/v1alpha1/AgentConfig.schema.json"
    );
    assert!(schema["properties"]["server"].is_object());
}
